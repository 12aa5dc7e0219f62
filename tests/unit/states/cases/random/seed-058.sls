s0:
  test.fail_without_changes:
  - onfail:
    - test: s4
  - onchanges_any:
    - test: s4
    - test: s7
  - prereq:
    - test: s6
s1:
  test.nop:
  - onfail:
    - test: s0
  - watch:
    - test: s0
  - onchanges_in:
    - test: s5
s2:
  test.succeed_with_changes:
  - prereq:
    - test: s1
s3:
  test.fail_without_changes: []
s4:
  test.nop:
  - require_any:
    - test: s2
  - onchanges:
    - test: s2
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
  - onchanges_any:
    - test: s2
  - onfail_any:
    - test: s7
  - prereq:
    - test: s3
  - order: first
  - unless: 'true'
s6:
  test.fail_without_changes: []
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s2
    - test: s4
  - require:
    - test: s2
