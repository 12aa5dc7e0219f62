s0:
  test.fail_without_changes:
  - onchanges:
    - test: s2
  - listen:
    - test: s12
    - test: s11
  - order: last
s1:
  test.nop:
  - unless: 'true'
s2:
  test.nop:
  - watch:
    - test: s6
  - onchanges_in:
    - test: s14
s3:
  test.nop:
  - listen:
    - test: s6
  - onchanges_in:
    - test: s9
s4:
  test.nop:
  - watch:
    - test: s10
  - order: -2
  - check_cmd: 'false'
s5:
  test.fail_without_changes:
  - watch:
    - test: s12
  - onfail:
    - test: s6
  - require_any:
    - test: s19
  - require_in:
    - test: s20
  - order: 2
  - unless: 'false'
  - check_cmd: 'true'
s6:
  test.fail_without_changes:
  - watch_any:
    - test: s1
s7:
  test.fail_with_changes:
  - require_any:
    - test: s2
    - test: s14
  - onfail:
    - test: s2
  - unless: 'true'
s8:
  test.fail_with_changes:
  - require:
    - test: s10
  - watch:
    - test: s6
    - test: s1
  - order: 1
  - check_cmd: 'true'
s9:
  test.nop:
  - watch:
    - test: s0
    - test: s4
  - onfail_any:
    - test: s19
    - test: s15
  - onfail_all:
    - test: s16
    - test: s3
s10:
  test.nop:
  - require_any:
    - test: s13
s11:
  test.succeed_with_changes:
  - prereq:
    - test: s3
s12:
  test.fail_with_changes:
  - onchanges:
    - test: s18
  - listen_in:
    - test: s21
s13:
  test.succeed_with_changes:
  - watch:
    - test: s18
  - onfail_any:
    - test: s18
    - test: s1
  - onfail_in:
    - test: s9
s14:
  test.succeed_with_changes:
  - require:
    - test: s13
  - onchanges:
    - test: s13
  - unless: 'true'
s15:
  test.nop:
  - require:
    - test: s7
  - watch_any:
    - test: s12
  - require_in:
    - test: s5
s16:
  test.succeed_with_changes:
  - onfail_any:
    - test: s8
  - watch_any:
    - test: s7
  - require_in:
    - test: s11
s17:
  test.succeed_with_changes:
  - require_any:
    - test: s2
    - test: s18
s18:
  test.succeed_with_changes:
  - onfail:
    - test: s1
  - listen:
    - test: s19
    - test: s15
s19:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s18
    - test: s1
  - listen:
    - test: s0
  - prereq:
    - test: s2
s20:
  test.fail_without_changes:
  - require:
    - test: s7
    - test: s10
  - watch_any:
    - test: s5
    - test: s12
s21:
  test.nop:
  - listen:
    - test: s12
  - prereq:
    - test: s3
s22:
  test.nop:
  - watch:
    - test: s8
