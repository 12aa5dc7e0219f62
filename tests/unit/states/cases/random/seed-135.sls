s0:
  test.nop:
  - require_in:
    - test: s9
  - onlyif: 'false'
s1:
  test.succeed_with_changes:
  - require:
    - test: s12
s2:
  test.nop:
  - onchanges:
    - test: s1
    - test: s12
    - test: s6
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s4
  - unless: 'true'
s4:
  test.nop:
  - require:
    - test: s13
s5:
  test.fail_without_changes:
  - onchanges:
    - test: s10
    - test: s19
  - watch:
    - test: s21
  - require:
    - test: s19
    - test: s14
s6:
  test.succeed_with_changes: []
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s16
  - watch:
    - test: s16
  - check_cmd: 'false'
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - onchanges:
    - test: s21
    - test: s9
    - test: s2
s9:
  test.nop:
  - onfail_all:
    - test: s10
    - test: s5
s10:
  test.succeed_with_changes:
  - order: 2
s11:
  test.fail_without_changes:
  - onchanges_any:
    - test: s19
s12:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s8
s13:
  test.succeed_with_changes:
  - require:
    - test: s19
    - test: s6
s14:
  test.fail_with_changes:
  - onfail_any:
    - test: s17
    - test: s12
    - test: s19
  - prereq:
    - test: s4
  - onlyif: 'false'
s15:
  test.nop: []
s16:
  test.nop:
  - onchanges:
    - test: s1
  - listen:
    - test: s3
    - test: s5
  - onlyif: 'false'
s17:
  test.succeed_with_changes: []
s18:
  test.nop:
  - require:
    - test: s10
  - onfail:
    - test: s3
s19:
  test.succeed_with_changes:
  - onfail_all:
    - test: s12
  - require:
    - test: s12
    - test: s17
s20:
  test.succeed_with_changes:
  - require:
    - test: s10
    - test: s12
  - onchanges:
    - test: s13
  - onlyif: 'true'
s21:
  test.succeed_with_changes:
  - onchanges:
    - test: s10
  - order: first
