s0:
  test.succeed_with_changes:
  - require:
    - test: s18
  - prereq:
    - test: s12
s1:
  test.nop: []
s2:
  test.succeed_with_changes:
  - order: last
s3:
  test.nop:
  - onchanges:
    - test: s16
  - watch:
    - test: s13
  - require_any:
    - test: s18
    - test: s16
  - prereq:
    - test: s10
s4:
  test.nop:
  - require:
    - test: s10
    - test: s15
    - test: s13
    - test: s20
  - onfail:
    - test: s6
    - test: s16
  - onfail_in:
    - test: s9
s5:
  test.fail_with_changes:
  - require:
    - test: s9
  - require_any:
    - test: s8
s6:
  test.fail_without_changes:
  - check_cmd: 'true'
s7:
  test.succeed_with_changes:
  - require:
    - test: s10
  - prereq:
    - test: s5
  - order: 2
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s15
  - onchanges:
    - test: s15
s9:
  test.fail_with_changes: []
s10:
  test.succeed_with_changes:
  - watch:
    - test: s20
  - require_any:
    - test: s6
s11:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
    - test: s18
  - require:
    - test: s3
  - prereq:
    - test: s7
s12:
  test.nop:
  - watch_any:
    - test: s10
  - onfail:
    - test: s3
s13:
  test.fail_without_changes: []
s14:
  test.nop:
  - require_any:
    - test: s8
  - onfail:
    - test: s1
    - test: s12
  - onchanges_any:
    - test: s11
    - test: s16
  - watch_in:
    - test: s5
s15:
  test.fail_without_changes:
  - onfail_any:
    - test: s20
  - onchanges_in:
    - test: s8
s16:
  test.succeed_with_changes:
  - require:
    - test: s13
  - watch_in:
    - test: s8
s17:
  test.succeed_with_changes:
  - onfail_all:
    - test: s20
    - test: s18
  - require:
    - test: s13
    - test: s16
  - listen:
    - test: s9
  - unless: 'true'
s18:
  test.fail_without_changes:
  - require_any:
    - test: s13
  - watch_any:
    - test: s16
s19:
  test.fail_with_changes:
  - require:
    - test: s6
  - onchanges:
    - test: s12
s20:
  test.nop:
  - watch_in:
    - test: s7
