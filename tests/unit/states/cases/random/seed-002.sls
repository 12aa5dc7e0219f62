s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s2
    - test: s3
  - order: -1
s1:
  test.succeed_with_changes:
  - listen:
    - test: s3
  - require:
    - test: s3
s2:
  test.succeed_with_changes:
  - prereq:
    - test: s3
s3:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s2
s4:
  test.fail_with_changes:
  - onfail_all:
    - test: s2
    - test: s3
  - onchanges:
    - test: s3
