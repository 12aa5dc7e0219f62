s0:
  test.succeed_with_changes:
  - onfail:
    - test: s4
  - onchanges_in:
    - test: s13
  - unless: 'false'
s1:
  test.succeed_with_changes:
  - watch_in:
    - test: s13
  - order: 2
s2:
  test.succeed_with_changes: []
s3:
  test.nop: []
s4:
  test.succeed_with_changes:
  - onfail_any:
    - test: s11
  - onlyif: 'true'
s5:
  test.fail_with_changes: []
s6:
  test.fail_without_changes:
  - listen_in:
    - test: s8
  - prereq:
    - test: s10
s7:
  test.succeed_with_changes:
  - onfail_in:
    - test: s6
  - unless: 'true'
s8:
  test.nop: []
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s2
  - watch_in:
    - test: s3
s10:
  test.nop:
  - onfail_any:
    - test: s9
    - test: s21
  - require:
    - test: s21
  - check_cmd: 'false'
s11:
  test.succeed_with_changes:
  - watch_in:
    - test: s0
s12:
  test.fail_without_changes:
  - require:
    - test: s14
    - test: s11
s13:
  test.succeed_with_changes:
  - onchanges:
    - test: s1
  - onfail_all:
    - test: s14
s14:
  test.fail_without_changes:
  - onfail_all:
    - test: s16
    - test: s5
  - require_any:
    - test: s16
    - test: s5
  - order: -2
s15:
  test.nop: []
s16:
  test.fail_without_changes: []
s17:
  test.succeed_with_changes:
  - require:
    - test: s11
    - test: s1
  - onfail:
    - test: s18
  - order: -1
s18:
  test.fail_without_changes: []
s19:
  test.nop:
  - onchanges:
    - test: s5
    - test: s16
  - order: -1
s20:
  test.nop:
  - watch:
    - test: s16
    - test: s19
  - onfail:
    - test: s13
  - onchanges:
    - test: s13
s21:
  test.nop:
  - require:
    - test: s13
  - onfail:
    - test: s17
  - listen_in:
    - test: s8
s22:
  test.nop:
  - watch:
    - test: s16
  - onchanges_any:
    - test: s11
  - order: 3
s23:
  test.succeed_with_changes: []
