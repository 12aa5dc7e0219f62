s0:
  test.fail_without_changes:
  - watch_in:
    - test: s16
s1:
  test.nop:
  - require:
    - test: s6
    - test: s4
    - test: s8
  - require_in:
    - test: s5
s2:
  test.succeed_with_changes:
  - watch_any:
    - test: s11
s3:
  test.fail_with_changes:
  - onfail_any:
    - test: s7
s4:
  test.fail_with_changes:
  - onfail:
    - test: s6
s5:
  test.succeed_with_changes:
  - onfail:
    - test: s20
s6:
  test.nop:
  - require:
    - test: s11
    - test: s0
  - order: -2
s7:
  test.fail_with_changes:
  - watch_any:
    - test: s20
s8:
  test.fail_with_changes:
  - onchanges_any:
    - test: s11
    - test: s6
  - listen_in:
    - test: s7
s9:
  test.nop:
  - onchanges:
    - test: s11
  - watch:
    - test: s15
    - test: s2
  - order: -1
s10:
  test.nop:
  - watch:
    - test: s8
  - watch_in:
    - test: s16
  - unless: 'true'
s11:
  test.succeed_with_changes: []
s12:
  test.fail_with_changes:
  - require:
    - test: s6
s13:
  test.fail_with_changes:
  - onchanges_any:
    - test: s0
s14:
  test.nop:
  - onfail_any:
    - test: s8
    - test: s11
s15:
  test.nop:
  - onlyif: 'true'
s16:
  test.fail_with_changes:
  - watch:
    - test: s7
    - test: s1
    - test: s10
  - onfail:
    - test: s6
    - test: s3
s17:
  test.nop:
  - onchanges:
    - test: s0
    - test: s8
s18:
  test.succeed_with_changes:
  - watch:
    - test: s0
    - test: s6
  - listen:
    - test: s4
  - require_in:
    - test: s9
s19:
  test.nop:
  - listen:
    - test: s13
s20:
  test.nop:
  - onfail_all:
    - test: s4
  - order: 1
