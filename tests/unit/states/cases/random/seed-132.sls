s0:
  test.fail_with_changes:
  - onfail_any:
    - test: s12
    - test: s15
s1:
  test.fail_without_changes: []
s2:
  test.nop:
  - onfail:
    - test: s7
s3:
  test.succeed_with_changes: []
s4:
  test.fail_without_changes:
  - require_any:
    - test: s2
  - onfail:
    - test: s2
    - test: s9
s5:
  test.nop: []
s6:
  test.succeed_with_changes: []
s7:
  test.nop:
  - listen:
    - test: s4
  - require:
    - test: s16
    - test: s6
    - test: s10
  - order: 3
s8:
  test.nop:
  - require:
    - test: s6
  - watch:
    - test: s9
  - onchanges:
    - test: s7
    - test: s3
s9:
  test.fail_without_changes:
  - watch:
    - test: s11
s10:
  test.succeed_with_changes:
  - require:
    - test: s9
  - onchanges:
    - test: s6
  - watch_in:
    - test: s16
s11:
  test.fail_without_changes:
  - require:
    - test: s5
s12:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s5
    - test: s3
  - require_in:
    - test: s0
  - order: first
s13:
  test.nop: []
s14:
  test.succeed_with_changes:
  - onfail_all:
    - test: s16
s15:
  test.nop:
  - require:
    - test: s12
    - test: s5
  - onchanges:
    - test: s10
    - test: s12
s16:
  test.nop:
  - onfail_all:
    - test: s6
  - onchanges:
    - test: s9
  - order: -2
s17:
  test.succeed_with_changes:
  - order: -1
