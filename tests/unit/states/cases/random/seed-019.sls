s0:
  test.nop:
  - onfail:
    - test: s2
    - test: s1
  - onchanges:
    - test: s2
s1:
  test.nop:
  - order: 2
s2:
  test.succeed_with_changes:
  - require:
    - test: s3
  - require_any:
    - test: s3
s3:
  test.succeed_with_changes:
  - order: -1
s4:
  test.succeed_with_changes: []
