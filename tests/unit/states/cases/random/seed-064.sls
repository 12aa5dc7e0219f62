s0:
  test.nop:
  - listen_in:
    - test: s3
s1:
  test.nop:
  - require_any:
    - test: s13
  - watch:
    - test: s15
    - test: s8
  - onfail_all:
    - test: s14
  - order: last
s2:
  test.nop:
  - watch:
    - test: s8
    - test: s1
s3:
  test.nop:
  - onchanges:
    - test: s9
s4:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - require_in:
    - test: s0
s5:
  test.fail_with_changes:
  - watch_any:
    - test: s7
  - onlyif: 'true'
s6:
  test.succeed_with_changes: []
s7:
  test.nop:
  - onfail:
    - test: s9
s8:
  test.fail_with_changes:
  - onfail_any:
    - test: s16
s9:
  test.nop: []
s10:
  test.nop:
  - listen_in:
    - test: s12
s11:
  test.succeed_with_changes:
  - onchanges:
    - test: s15
  - require_in:
    - test: s4
  - order: -2
s12:
  test.fail_without_changes:
  - watch:
    - test: s10
  - onchanges:
    - test: s5
s13:
  test.nop:
  - onfail:
    - test: s7
  - listen:
    - test: s10
  - onchanges:
    - test: s7
    - test: s9
  - watch_in:
    - test: s0
s14:
  test.succeed_with_changes:
  - listen:
    - test: s8
  - order: -1
s15:
  test.succeed_with_changes:
  - require:
    - test: s8
  - watch_any:
    - test: s9
  - onlyif: 'true'
s16:
  test.succeed_with_changes:
  - require_any:
    - test: s14
s17:
  test.nop:
  - watch_in:
    - test: s6
  - prereq:
    - test: s6
s18:
  test.fail_with_changes:
  - listen:
    - test: s17
  - onchanges:
    - test: s15
