s0:
  test.nop:
  - require_any:
    - test: s4
s1:
  test.succeed_with_changes:
  - onfail:
    - test: s8
  - watch:
    - test: s6
    - test: s7
s2:
  test.fail_without_changes: []
s3:
  test.fail_with_changes: []
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
s5:
  test.fail_without_changes:
  - listen_in:
    - test: s11
s6:
  test.fail_without_changes:
  - require:
    - test: s4
  - onchanges:
    - test: s5
s7:
  test.nop:
  - onchanges:
    - test: s6
s8:
  test.succeed_with_changes: []
s9:
  test.succeed_with_changes:
  - onfail_all:
    - test: s11
s10:
  test.succeed_with_changes:
  - watch_in:
    - test: s9
s11:
  test.succeed_with_changes: []
