s0:
  test.fail_with_changes:
  - onchanges_any:
    - test: s1
s1:
  test.fail_without_changes:
  - watch_in:
    - test: s3
s2:
  test.nop:
  - onfail:
    - test: s1
s3:
  test.fail_without_changes:
  - watch:
    - test: s2
s4:
  test.succeed_with_changes:
  - watch_any:
    - test: s0
  - onfail:
    - test: s0
    - test: s2
  - onchanges_in:
    - test: s3
