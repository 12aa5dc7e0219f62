s0:
  test.fail_without_changes:
  - watch:
    - test: s7
  - require_any:
    - test: s7
s1:
  test.nop:
  - onfail_any:
    - test: s7
  - require:
    - test: s13
s2:
  test.fail_with_changes:
  - prereq:
    - test: s16
s3:
  test.succeed_with_changes:
  - require_any:
    - test: s22
    - test: s13
  - listen_in:
    - test: s2
s4:
  test.nop:
  - onfail_all:
    - test: s9
  - watch:
    - test: s3
  - listen_in:
    - test: s16
  - order: -2
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s19
  - require_any:
    - test: s6
  - check_cmd: 'false'
s6:
  test.nop:
  - watch_any:
    - test: s14
    - test: s1
  - onfail_all:
    - test: s14
s7:
  test.succeed_with_changes:
  - watch:
    - test: s13
  - onchanges:
    - test: s13
s8:
  test.nop:
  - onfail_all:
    - test: s7
  - require:
    - test: s19
s9:
  test.fail_with_changes: []
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s13
    - test: s1
  - order: 3
s11:
  test.succeed_with_changes: []
s12:
  test.nop:
  - watch:
    - test: s6
  - order: 3
s13:
  test.fail_without_changes: []
s14:
  test.succeed_with_changes: []
s15:
  test.fail_without_changes:
  - onchanges_any:
    - test: s1
    - test: s7
s16:
  test.nop:
  - onchanges:
    - test: s10
s17:
  test.nop:
  - watch:
    - test: s7
    - test: s16
  - onchanges_any:
    - test: s20
    - test: s3
  - order: 1
s18:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s16
s19:
  test.fail_without_changes:
  - onfail:
    - test: s7
  - watch:
    - test: s13
s20:
  test.nop:
  - onchanges_any:
    - test: s8
  - require_in:
    - test: s15
s21:
  test.succeed_with_changes:
  - require:
    - test: s5
  - order: 3
s22:
  test.succeed_with_changes: []
s23:
  test.succeed_with_changes:
  - onchanges:
    - test: s20
  - order: -2
