s0:
  test.nop:
  - watch:
    - test: s12
s1:
  test.fail_with_changes:
  - order: 3
s2:
  test.fail_with_changes:
  - require:
    - test: s7
  - watch:
    - test: s8
s3:
  test.fail_without_changes:
  - onchanges:
    - test: s18
    - test: s15
  - require:
    - test: s4
s4:
  test.fail_without_changes: []
s5:
  test.nop:
  - watch:
    - test: s11
    - test: s16
  - onfail_any:
    - test: s11
s6:
  test.nop:
  - order: -1
s7:
  test.fail_without_changes:
  - require_any:
    - test: s8
    - test: s17
  - onchanges:
    - test: s6
  - require_in:
    - test: s10
  - order: -2
s8:
  test.succeed_with_changes:
  - require:
    - test: s19
  - watch:
    - test: s4
    - test: s21
s9:
  test.succeed_with_changes:
  - require:
    - test: s17
  - onfail_all:
    - test: s20
s10:
  test.nop: []
s11:
  test.succeed_with_changes:
  - require:
    - test: s7
  - listen:
    - test: s19
s12:
  test.fail_without_changes:
  - onfail_any:
    - test: s4
s13:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s12
  - order: last
s14:
  test.succeed_with_changes:
  - onfail_any:
    - test: s16
s15:
  test.fail_without_changes:
  - onfail:
    - test: s19
  - require:
    - test: s21
  - onchanges:
    - test: s4
  - watch_in:
    - test: s3
s16:
  test.nop:
  - require:
    - test: s17
  - onfail:
    - test: s21
    - test: s4
s17:
  test.nop:
  - watch:
    - test: s12
  - onchanges_any:
    - test: s12
  - onfail_all:
    - test: s12
  - order: last
s18:
  test.fail_without_changes:
  - require:
    - test: s4
  - unless: 'false'
s19:
  test.nop:
  - require:
    - test: s17
  - onfail:
    - test: s4
    - test: s20
  - watch:
    - test: s17
  - onfail_in:
    - test: s11
s20:
  test.succeed_with_changes:
  - onchanges:
    - test: s18
s21:
  test.succeed_with_changes:
  - prereq:
    - test: s10
  - unless: 'false'
