s0:
  test.nop:
  - onfail_any:
    - test: s4
  - onchanges:
    - test: s3
  - watch:
    - test: s6
  - order: 3
s1:
  test.succeed_with_changes: []
s2:
  test.fail_without_changes:
  - onchanges:
    - test: s1
s3:
  test.fail_without_changes:
  - onchanges:
    - test: s4
    - test: s6
  - onfail_in:
    - test: s0
s4:
  test.succeed_with_changes:
  - watch:
    - test: s1
  - require:
    - test: s1
s5:
  test.succeed_with_changes:
  - require:
    - test: s2
    - test: s1
  - onfail_any:
    - test: s4
s6:
  test.succeed_with_changes:
  - prereq:
    - test: s0
