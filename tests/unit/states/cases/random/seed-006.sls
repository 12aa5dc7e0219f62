s0:
  test.nop:
  - onfail:
    - test: s1
  - onchanges:
    - test: s1
  - watch_any:
    - test: s5
    - test: s1
  - listen_in:
    - test: s3
s1:
  test.fail_without_changes: []
s2:
  test.fail_without_changes:
  - require:
    - test: s1
s3:
  test.succeed_with_changes: []
s4:
  test.nop:
  - listen_in:
    - test: s2
  - prereq:
    - test: s3
s5:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
  - prereq:
    - test: s2
