s0:
  test.succeed_with_changes:
  - order: 1
s1:
  test.nop:
  - onchanges_in:
    - test: s3
s2:
  test.succeed_with_changes:
  - onchanges:
    - test: s1
  - order: last
s3:
  test.fail_without_changes:
  - watch:
    - test: s1
    - test: s4
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s1
s5:
  test.fail_without_changes:
  - watch:
    - test: s0
s6:
  test.succeed_with_changes: []
