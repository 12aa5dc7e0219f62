s0:
  test.nop:
  - onfail_any:
    - test: s20
s1:
  test.succeed_with_changes:
  - watch:
    - test: s5
  - order: -1
s2:
  test.fail_without_changes:
  - onfail_in:
    - test: s0
s3:
  test.succeed_with_changes:
  - watch:
    - test: s17
s4:
  test.succeed_with_changes:
  - watch:
    - test: s20
    - test: s21
  - require:
    - test: s3
s5:
  test.fail_without_changes:
  - require_any:
    - test: s22
    - test: s17
  - onfail:
    - test: s18
    - test: s17
  - onchanges_in:
    - test: s14
s6:
  test.succeed_with_changes:
  - require_any:
    - test: s13
    - test: s19
  - check_cmd: 'true'
s7:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s16
s8:
  test.fail_without_changes:
  - listen_in:
    - test: s6
s9:
  test.succeed_with_changes: []
s10:
  test.succeed_with_changes: []
s11:
  test.fail_with_changes: []
s12:
  test.succeed_with_changes:
  - onfail:
    - test: s18
    - test: s21
  - onchanges_any:
    - test: s19
s13:
  test.succeed_with_changes:
  - onfail_any:
    - test: s12
s14:
  test.succeed_with_changes:
  - onfail_any:
    - test: s12
    - test: s19
  - onchanges:
    - test: s2
s15:
  test.succeed_with_changes:
  - require:
    - test: s8
  - onfail_all:
    - test: s20
    - test: s13
  - prereq:
    - test: s9
s16:
  test.succeed_with_changes:
  - onfail:
    - test: s5
  - require:
    - test: s14
    - test: s17
s17:
  test.nop: []
s18:
  test.nop: []
s19:
  test.succeed_with_changes:
  - onfail:
    - test: s21
  - check_cmd: 'false'
s20:
  test.succeed_with_changes:
  - require:
    - test: s18
  - onfail:
    - test: s3
    - test: s18
s21:
  test.fail_with_changes: []
s22:
  test.succeed_with_changes:
  - onfail_any:
    - test: s12
  - onchanges_any:
    - test: s3
