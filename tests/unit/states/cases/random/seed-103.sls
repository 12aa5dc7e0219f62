s0:
  test.nop:
  - watch_any:
    - test: s11
    - test: s16
s1:
  test.succeed_with_changes:
  - watch:
    - test: s7
    - test: s18
  - onfail_all:
    - test: s8
s2:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
s3:
  test.nop: []
s4:
  test.fail_with_changes: []
s5:
  test.nop:
  - onchanges:
    - test: s4
    - test: s9
  - onchanges_any:
    - test: s8
s6:
  test.succeed_with_changes:
  - require:
    - test: s16
  - onfail:
    - test: s19
  - require_in:
    - test: s14
s7:
  test.fail_without_changes:
  - require_any:
    - test: s5
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s4
  - require:
    - test: s4
  - watch:
    - test: s4
s9:
  test.succeed_with_changes:
  - watch_any:
    - test: s8
  - onfail_all:
    - test: s8
s10:
  test.nop:
  - listen:
    - test: s19
    - test: s0
  - require:
    - test: s21
    - test: s4
s11:
  test.succeed_with_changes:
  - order: 1
s12:
  test.succeed_with_changes:
  - onchanges:
    - test: s18
s13:
  test.succeed_with_changes:
  - watch_any:
    - test: s17
    - test: s16
s14:
  test.succeed_with_changes:
  - require:
    - test: s15
s15:
  test.succeed_with_changes:
  - watch_in:
    - test: s22
  - order: last
s16:
  test.succeed_with_changes:
  - watch:
    - test: s4
  - require:
    - test: s8
    - test: s9
  - order: 1
s17:
  test.fail_with_changes: []
s18:
  test.fail_without_changes:
  - onfail:
    - test: s11
    - test: s16
  - onchanges_any:
    - test: s9
    - test: s0
  - watch:
    - test: s5
s19:
  test.succeed_with_changes:
  - watch_any:
    - test: s10
  - onfail:
    - test: s10
s20:
  test.nop:
  - onfail:
    - test: s0
  - onlyif: 'false'
s21:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
  - watch:
    - test: s8
    - test: s9
    - test: s5
s22:
  test.succeed_with_changes:
  - onchanges:
    - test: s8
    - test: s16
