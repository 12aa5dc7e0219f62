s0:
  test.fail_without_changes:
  - require:
    - test: s5
  - unless: 'true'
s1:
  test.succeed_with_changes:
  - unless: 'false'
s2:
  test.nop: []
s3:
  test.succeed_with_changes:
  - onfail:
    - test: s1
s4:
  test.succeed_with_changes:
  - onfail:
    - test: s3
  - watch:
    - test: s3
    - test: s1
  - onchanges:
    - test: s8
    - test: s5
s5:
  test.succeed_with_changes:
  - onfail_any:
    - test: s1
  - prereq:
    - test: s7
s6:
  test.fail_with_changes: []
s7:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s9
  - order: 2
s8:
  test.succeed_with_changes: []
s9:
  test.succeed_with_changes:
  - onfail_in:
    - test: s7
  - order: 2
