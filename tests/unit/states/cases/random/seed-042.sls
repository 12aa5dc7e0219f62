s0:
  test.succeed_with_changes: []
s1:
  test.succeed_with_changes:
  - watch_in:
    - test: s0
  - order: last
s2:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s4
    - test: s1
s3:
  test.succeed_with_changes:
  - require_in:
    - test: s2
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes:
  - require:
    - test: s3
