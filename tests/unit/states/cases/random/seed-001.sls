s0:
  test.nop:
  - require_any:
    - test: s1
  - onfail_any:
    - test: s5
  - watch_any:
    - test: s1
    - test: s5
s1:
  test.succeed_with_changes:
  - prereq:
    - test: s5
s2:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s3
s3:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s0
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
s5:
  test.fail_with_changes: []
s6:
  test.fail_without_changes:
  - require:
    - test: s3
  - watch:
    - test: s3
