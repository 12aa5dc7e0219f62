s0:
  test.nop:
  - onchanges:
    - test: s2
  - onfail_any:
    - test: s12
  - watch_in:
    - test: s11
s1:
  test.nop:
  - watch_any:
    - test: s4
    - test: s15
s2:
  test.fail_without_changes:
  - onfail_any:
    - test: s15
  - onchanges:
    - test: s5
    - test: s15
s3:
  test.succeed_with_changes: []
s4:
  test.nop:
  - require_in:
    - test: s7
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s14
  - watch:
    - test: s14
s6:
  test.fail_without_changes:
  - watch_any:
    - test: s10
  - listen_in:
    - test: s1
s7:
  test.fail_without_changes:
  - onchanges_any:
    - test: s10
  - onfail_any:
    - test: s10
  - watch_any:
    - test: s2
  - order: -1
s8:
  test.succeed_with_changes:
  - onfail_any:
    - test: s16
    - test: s13
  - order: 1
s9:
  test.fail_with_changes:
  - require:
    - test: s3
  - onfail:
    - test: s14
s10:
  test.succeed_with_changes:
  - require:
    - test: s16
  - watch:
    - test: s16
  - require_in:
    - test: s4
  - order: 3
s11:
  test.succeed_with_changes:
  - onfail_any:
    - test: s0
    - test: s13
  - watch:
    - test: s15
    - test: s14
  - onfail_in:
    - test: s1
s12:
  test.fail_with_changes: []
s13:
  test.succeed_with_changes:
  - watch_any:
    - test: s2
    - test: s14
  - watch:
    - test: s15
  - onfail:
    - test: s2
  - order: last
s14:
  test.fail_without_changes: []
s15:
  test.succeed_with_changes: []
s16:
  test.nop:
  - onchanges_any:
    - test: s2
    - test: s5
  - onchanges_in:
    - test: s10
