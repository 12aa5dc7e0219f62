s0:
  test.succeed_with_changes:
  - require:
    - test: s7
s1:
  test.fail_without_changes:
  - watch:
    - test: s15
    - test: s14
s2:
  test.fail_without_changes:
  - onchanges:
    - test: s11
s3:
  test.nop:
  - onchanges_any:
    - test: s7
  - onfail_all:
    - test: s7
    - test: s11
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s0
  - watch:
    - test: s9
s5:
  test.succeed_with_changes:
  - require:
    - test: s4
    - test: s2
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s2
    - test: s4
  - watch_any:
    - test: s10
    - test: s9
s7:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s11
  - watch:
    - test: s11
  - order: 3
s8:
  test.fail_with_changes: []
s9:
  test.succeed_with_changes:
  - require:
    - test: s0
s10:
  test.nop:
  - require:
    - test: s2
s11:
  test.succeed_with_changes: []
s12:
  test.nop:
  - onchanges:
    - test: s13
s13:
  test.nop:
  - onfail_any:
    - test: s15
s14:
  test.succeed_with_changes:
  - onchanges:
    - test: s15
    - test: s0
    - test: s9
  - require:
    - test: s4
s15:
  test.succeed_with_changes:
  - onfail:
    - test: s7
