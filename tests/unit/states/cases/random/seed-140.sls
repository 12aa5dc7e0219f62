s0:
  test.nop:
  - require_any:
    - test: s17
  - require:
    - test: s16
    - test: s23
s1:
  test.succeed_with_changes:
  - watch:
    - test: s11
  - listen:
    - test: s23
  - onfail_all:
    - test: s5
s2:
  test.succeed_with_changes:
  - onfail_any:
    - test: s23
    - test: s18
  - onfail:
    - test: s21
    - test: s18
s3:
  test.nop:
  - watch:
    - test: s19
  - onchanges_any:
    - test: s6
s4:
  test.nop:
  - watch:
    - test: s5
    - test: s9
s5:
  test.nop:
  - onchanges:
    - test: s21
  - onfail:
    - test: s21
s6:
  test.fail_without_changes:
  - watch:
    - test: s14
    - test: s5
  - onchanges:
    - test: s16
    - test: s9
s7:
  test.succeed_with_changes:
  - onfail_in:
    - test: s3
s8:
  test.succeed_with_changes:
  - watch:
    - test: s10
  - require_any:
    - test: s20
  - onchanges_any:
    - test: s17
    - test: s6
s9:
  test.fail_without_changes:
  - onfail:
    - test: s21
  - unless: 'true'
s10:
  test.fail_without_changes:
  - require_any:
    - test: s9
    - test: s23
  - order: 3
  - onlyif: 'false'
s11:
  test.succeed_with_changes:
  - require:
    - test: s16
    - test: s2
    - test: s12
    - test: s5
s12:
  test.nop:
  - onfail:
    - test: s9
  - onfail_any:
    - test: s5
  - onchanges:
    - test: s9
  - order: -2
s13:
  test.nop: []
s14:
  test.nop:
  - watch:
    - test: s5
  - onfail_in:
    - test: s13
s15:
  test.succeed_with_changes:
  - require_in:
    - test: s3
s16:
  test.succeed_with_changes:
  - onchanges:
    - test: s12
s17:
  test.succeed_with_changes:
  - listen:
    - test: s14
s18:
  test.fail_without_changes:
  - require:
    - test: s19
    - test: s5
  - onfail_in:
    - test: s11
  - order: first
s19:
  test.nop:
  - watch:
    - test: s14
    - test: s21
  - require_in:
    - test: s10
s20:
  test.succeed_with_changes:
  - require:
    - test: s19
    - test: s6
s21:
  test.succeed_with_changes:
  - require_in:
    - test: s4
s22:
  test.fail_without_changes:
  - order: 2
s23:
  test.fail_without_changes:
  - watch:
    - test: s19
  - require:
    - test: s14
    - test: s18
  - unless: 'false'
