s0:
  test.succeed_with_changes: []
s1:
  test.succeed_with_changes:
  - require:
    - test: s9
  - onfail_in:
    - test: s4
  - order: 3
s2:
  test.fail_without_changes: []
s3:
  test.nop:
  - watch:
    - test: s9
s4:
  test.nop:
  - require:
    - test: s6
  - onchanges:
    - test: s5
    - test: s7
  - require_in:
    - test: s2
  - prereq:
    - test: s8
s5:
  test.succeed_with_changes:
  - onlyif: 'false'
s6:
  test.nop:
  - onfail:
    - test: s5
s7:
  test.fail_with_changes:
  - onchanges:
    - test: s9
    - test: s5
s8:
  test.nop:
  - order: first
  - unless: 'false'
s9:
  test.succeed_with_changes:
  - onfail_all:
    - test: s5
  - onchanges_any:
    - test: s5
  - onfail_any:
    - test: s5
  - prereq:
    - test: s3
