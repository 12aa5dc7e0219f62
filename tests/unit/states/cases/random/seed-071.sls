s0:
  test.nop:
  - watch:
    - test: s11
    - test: s6
  - require:
    - test: s11
s1:
  test.succeed_with_changes: []
s2:
  test.succeed_with_changes:
  - order: first
s3:
  test.fail_without_changes:
  - onfail_any:
    - test: s14
    - test: s9
  - onchanges:
    - test: s7
    - test: s6
s4:
  test.nop:
  - require:
    - test: s15
  - onfail_in:
    - test: s16
s5:
  test.succeed_with_changes:
  - watch:
    - test: s8
s6:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s8
s7:
  test.fail_without_changes: []
s8:
  test.fail_with_changes: []
s9:
  test.fail_with_changes:
  - onchanges_any:
    - test: s13
    - test: s7
  - prereq:
    - test: s11
  - order: 3
s10:
  test.succeed_with_changes:
  - require:
    - test: s8
s11:
  test.succeed_with_changes:
  - require:
    - test: s9
    - test: s8
  - watch:
    - test: s13
  - require_any:
    - test: s15
s12:
  test.succeed_with_changes:
  - onchanges:
    - test: s14
  - watch:
    - test: s10
  - require:
    - test: s5
  - watch_in:
    - test: s2
  - check_cmd: 'false'
s13:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s16
s14:
  test.succeed_with_changes:
  - require:
    - test: s8
    - test: s9
  - onchanges:
    - test: s15
s15:
  test.nop:
  - onchanges:
    - test: s5
    - test: s9
    - test: s6
    - test: s7
s16:
  test.nop:
  - onchanges:
    - test: s14
    - test: s13
