s0:
  test.fail_with_changes:
  - watch_any:
    - test: s1
  - require:
    - test: s1
  - prereq:
    - test: s4
s1:
  test.fail_without_changes:
  - onchanges_any:
    - test: s3
s2:
  test.fail_without_changes:
  - onchanges:
    - test: s5
    - test: s4
s3:
  test.succeed_with_changes: []
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
s5:
  test.succeed_with_changes:
  - onfail:
    - test: s3
    - test: s0
  - prereq:
    - test: s2
