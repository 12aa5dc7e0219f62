s0:
  test.nop: []
s1:
  test.nop:
  - onchanges_any:
    - test: s20
  - onfail_all:
    - test: s20
s2:
  test.succeed_with_changes: []
s3:
  test.fail_with_changes:
  - require_any:
    - test: s4
  - onchanges:
    - test: s6
  - prereq:
    - test: s16
s4:
  test.succeed_with_changes:
  - onfail:
    - test: s12
  - onchanges:
    - test: s9
s5:
  test.nop:
  - listen_in:
    - test: s4
s6:
  test.fail_without_changes:
  - onfail_any:
    - test: s20
  - require:
    - test: s1
  - check_cmd: 'true'
s7:
  test.succeed_with_changes:
  - watch_any:
    - test: s12
    - test: s13
  - require:
    - test: s10
    - test: s17
  - onfail:
    - test: s6
s8:
  test.fail_without_changes:
  - onfail:
    - test: s1
  - onchanges_any:
    - test: s21
  - require:
    - test: s1
  - check_cmd: 'false'
s9:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
  - order: first
s10:
  test.fail_without_changes:
  - require:
    - test: s20
  - watch:
    - test: s9
  - onchanges_in:
    - test: s16
  - prereq:
    - test: s16
s11:
  test.nop:
  - onchanges:
    - test: s8
  - watch:
    - test: s20
  - order: first
s12:
  test.nop:
  - onchanges:
    - test: s1
s13:
  test.succeed_with_changes:
  - onfail_all:
    - test: s22
s14:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s6
    - test: s16
  - require:
    - test: s6
s15:
  test.succeed_with_changes: []
s16:
  test.fail_without_changes:
  - require_any:
    - test: s12
s17:
  test.fail_without_changes: []
s18:
  test.succeed_with_changes:
  - onfail_all:
    - test: s9
s19:
  test.nop:
  - watch:
    - test: s0
  - require:
    - test: s18
  - onchanges:
    - test: s7
    - test: s18
s20:
  test.nop: []
s21:
  test.fail_with_changes:
  - onchanges:
    - test: s22
  - onfail_in:
    - test: s14
s22:
  test.succeed_with_changes: []
