s0:
  test.succeed_with_changes:
  - order: 2
s1:
  test.succeed_with_changes:
  - require_any:
    - test: s0
  - require:
    - test: s3
  - watch_in:
    - test: s2
  - prereq:
    - test: s2
s2:
  test.nop:
  - order: first
s3:
  test.fail_without_changes:
  - onchanges:
    - test: s0
s4:
  test.nop:
  - onfail:
    - test: s0
  - watch:
    - test: s0
