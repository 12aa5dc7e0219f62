s0:
  test.nop: []
s1:
  test.nop:
  - onfail:
    - test: s16
s2:
  test.succeed_with_changes:
  - require:
    - test: s10
s3:
  test.succeed_with_changes:
  - watch_in:
    - test: s17
s4:
  test.nop:
  - onchanges:
    - test: s10
  - listen:
    - test: s7
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s2
  - order: -2
s6:
  test.succeed_with_changes:
  - listen:
    - test: s14
  - watch:
    - test: s16
s7:
  test.succeed_with_changes:
  - onfail_any:
    - test: s10
    - test: s0
  - check_cmd: 'true'
s8:
  test.fail_without_changes:
  - watch:
    - test: s13
s9:
  test.succeed_with_changes:
  - require:
    - test: s16
    - test: s8
s10:
  test.fail_with_changes:
  - onchanges:
    - test: s1
  - prereq:
    - test: s6
s11:
  test.succeed_with_changes: []
s12:
  test.nop:
  - watch_any:
    - test: s16
s13:
  test.fail_without_changes:
  - onfail_any:
    - test: s6
s14:
  test.succeed_with_changes:
  - watch:
    - test: s12
  - watch_in:
    - test: s17
s15:
  test.succeed_with_changes:
  - onfail_any:
    - test: s16
    - test: s2
  - require:
    - test: s3
  - onchanges_any:
    - test: s3
    - test: s13
  - order: -2
s16:
  test.fail_without_changes:
  - watch_in:
    - test: s2
  - check_cmd: 'true'
s17:
  test.nop: []
