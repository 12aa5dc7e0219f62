s0:
  test.nop: []
s1:
  test.succeed_with_changes:
  - onfail:
    - test: s18
  - require_any:
    - test: s7
    - test: s22
  - require:
    - test: s11
s2:
  test.nop:
  - onchanges:
    - test: s19
  - onfail_all:
    - test: s18
    - test: s16
  - require_in:
    - test: s0
  - order: 2
s3:
  test.nop: []
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes:
  - onfail_all:
    - test: s4
  - onfail:
    - test: s4
  - onlyif: 'false'
s6:
  test.succeed_with_changes:
  - onchanges:
    - test: s19
    - test: s20
s7:
  test.succeed_with_changes: []
s8:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
    - test: s18
  - listen_in:
    - test: s10
s9:
  test.nop:
  - order: first
  - onlyif: 'false'
s10:
  test.fail_without_changes:
  - onfail:
    - test: s4
  - order: 1
s11:
  test.succeed_with_changes:
  - onchanges:
    - test: s21
  - order: 1
s12:
  test.fail_without_changes: []
s13:
  test.nop:
  - watch:
    - test: s15
    - test: s11
  - watch_any:
    - test: s8
  - onchanges:
    - test: s6
    - test: s5
s14:
  test.succeed_with_changes:
  - require:
    - test: s11
  - onfail_any:
    - test: s5
  - onchanges:
    - test: s6
s15:
  test.fail_without_changes:
  - onchanges:
    - test: s22
    - test: s5
s16:
  test.nop:
  - onfail_all:
    - test: s6
  - order: 2
s17:
  test.succeed_with_changes:
  - watch_any:
    - test: s23
s18:
  test.nop:
  - require:
    - test: s21
  - require_in:
    - test: s0
s19:
  test.nop:
  - require:
    - test: s4
  - onfail:
    - test: s5
  - require_in:
    - test: s2
s20:
  test.succeed_with_changes:
  - onfail:
    - test: s15
    - test: s4
  - onchanges_any:
    - test: s4
  - prereq:
    - test: s8
  - onlyif: 'false'
s21:
  test.succeed_with_changes:
  - onfail:
    - test: s5
  - onchanges:
    - test: s22
  - order: 1
s22:
  test.succeed_with_changes:
  - onfail_any:
    - test: s5
  - require:
    - test: s4
    - test: s5
  - onfail:
    - test: s4
  - prereq:
    - test: s6
s23:
  test.fail_without_changes:
  - watch:
    - test: s13
  - require:
    - test: s9
    - test: s16
  - onchanges:
    - test: s18
