s0:
  test.succeed_with_changes: []
s1:
  test.fail_with_changes:
  - watch:
    - test: s11
  - require:
    - test: s11
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - require_any:
    - test: s11
s4:
  test.succeed_with_changes:
  - watch:
    - test: s3
  - watch_any:
    - test: s1
    - test: s0
  - require:
    - test: s3
    - test: s11
  - order: first
s5:
  test.succeed_with_changes:
  - watch_any:
    - test: s7
  - require_in:
    - test: s9
s6:
  test.succeed_with_changes:
  - onchanges:
    - test: s10
    - test: s0
  - onfail_in:
    - test: s4
s7:
  test.fail_without_changes:
  - prereq:
    - test: s8
s8:
  test.succeed_with_changes:
  - order: first
s9:
  test.nop: []
s10:
  test.fail_without_changes: []
s11:
  test.succeed_with_changes: []
