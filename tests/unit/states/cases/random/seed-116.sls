s0:
  test.nop: []
s1:
  test.fail_without_changes:
  - watch:
    - test: s14
    - test: s10
  - onchanges:
    - test: s13
    - test: s14
  - require_any:
    - test: s14
  - prereq:
    - test: s18
s2:
  test.fail_with_changes:
  - onfail_in:
    - test: s16
s3:
  test.nop:
  - require:
    - test: s15
    - test: s22
  - onchanges_in:
    - test: s0
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s20
    - test: s1
s5:
  test.nop:
  - listen:
    - test: s22
  - require_any:
    - test: s10
    - test: s14
  - prereq:
    - test: s3
s6:
  test.nop:
  - onchanges_any:
    - test: s8
  - onchanges:
    - test: s5
  - order: -2
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s22
s8:
  test.fail_without_changes:
  - onchanges:
    - test: s10
  - listen:
    - test: s17
  - onfail_in:
    - test: s18
  - unless: 'true'
s9:
  test.nop:
  - onchanges_in:
    - test: s19
  - check_cmd: 'false'
s10:
  test.nop:
  - watch:
    - test: s14
  - prereq:
    - test: s6
s11:
  test.nop:
  - onchanges_any:
    - test: s5
s12:
  test.nop:
  - onfail_in:
    - test: s16
  - prereq:
    - test: s21
s13:
  test.fail_without_changes:
  - onfail:
    - test: s10
    - test: s5
s14:
  test.fail_with_changes:
  - listen_in:
    - test: s17
s15:
  test.nop:
  - require:
    - test: s5
  - watch:
    - test: s13
  - onchanges:
    - test: s10
  - listen_in:
    - test: s0
s16:
  test.fail_without_changes:
  - watch:
    - test: s6
  - require_in:
    - test: s0
s17:
  test.nop:
  - listen_in:
    - test: s19
  - order: -2
s18:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
    - test: s5
  - order: 2
s19:
  test.fail_without_changes:
  - onchanges:
    - test: s6
s20:
  test.nop:
  - require:
    - test: s5
    - test: s1
  - prereq:
    - test: s15
  - order: 2
  - onlyif: 'true'
s21:
  test.fail_without_changes:
  - onchanges:
    - test: s10
    - test: s20
  - onfail_in:
    - test: s16
s22:
  test.succeed_with_changes: []
