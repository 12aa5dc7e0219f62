s0:
  test.nop:
  - onchanges:
    - test: s17
s1:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s0
s2:
  test.fail_without_changes:
  - onfail_any:
    - test: s10
s3:
  test.succeed_with_changes:
  - watch:
    - test: s9
s4:
  test.succeed_with_changes:
  - listen:
    - test: s7
  - watch_any:
    - test: s19
  - require_any:
    - test: s20
    - test: s21
  - onlyif: 'true'
s5:
  test.fail_with_changes:
  - onfail_any:
    - test: s10
    - test: s19
  - require:
    - test: s6
  - watch_any:
    - test: s13
s6:
  test.nop:
  - onchanges:
    - test: s14
  - prereq:
    - test: s15
s7:
  test.succeed_with_changes:
  - require:
    - test: s9
  - unless: 'false'
s8:
  test.nop: []
s9:
  test.succeed_with_changes:
  - listen_in:
    - test: s13
  - onlyif: 'true'
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s20
    - test: s21
  - prereq:
    - test: s14
  - onlyif: 'true'
s11:
  test.fail_without_changes:
  - onchanges:
    - test: s9
    - test: s18
  - watch:
    - test: s21
s12:
  test.fail_without_changes:
  - onchanges_any:
    - test: s18
  - watch:
    - test: s13
  - require:
    - test: s19
s13:
  test.fail_without_changes:
  - onchanges_in:
    - test: s7
s14:
  test.succeed_with_changes:
  - watch_any:
    - test: s9
  - unless: 'true'
s15:
  test.fail_without_changes:
  - onchanges_any:
    - test: s14
  - onchanges:
    - test: s17
s16:
  test.nop:
  - watch_in:
    - test: s17
s17:
  test.nop:
  - require:
    - test: s11
    - test: s9
  - order: first
s18:
  test.succeed_with_changes:
  - onfail:
    - test: s10
  - require:
    - test: s21
    - test: s19
s19:
  test.succeed_with_changes:
  - listen:
    - test: s16
  - onfail_any:
    - test: s20
s20:
  test.nop: []
s21:
  test.nop:
  - onfail:
    - test: s20
  - watch:
    - test: s20
  - order: 2
s22:
  test.fail_with_changes:
  - listen:
    - test: s16
