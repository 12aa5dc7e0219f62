s0:
  test.succeed_with_changes:
  - onfail_all:
    - test: s3
  - onchanges_any:
    - test: s2
    - test: s3
  - watch_any:
    - test: s1
s1:
  test.fail_without_changes:
  - watch_any:
    - test: s3
  - require:
    - test: s3
  - prereq:
    - test: s0
s2:
  test.fail_with_changes:
  - require:
    - test: s3
  - order: first
s3:
  test.fail_with_changes: []
s4:
  test.nop:
  - onfail_any:
    - test: s1
s5:
  test.nop: []
