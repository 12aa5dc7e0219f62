s0:
  test.succeed_with_changes:
  - require_any:
    - test: s9
  - watch:
    - test: s9
s1:
  test.fail_without_changes:
  - require_any:
    - test: s9
  - listen:
    - test: s14
s2:
  test.nop:
  - require:
    - test: s4
  - watch:
    - test: s4
    - test: s11
    - test: s16
  - require_in:
    - test: s5
s3:
  test.nop:
  - onchanges:
    - test: s0
    - test: s9
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s13
    - test: s8
  - onfail:
    - test: s15
    - test: s0
  - watch:
    - test: s17
    - test: s8
  - order: last
s5:
  test.fail_without_changes:
  - watch:
    - test: s7
    - test: s15
s6:
  test.succeed_with_changes:
  - prereq:
    - test: s12
s7:
  test.fail_without_changes:
  - watch_any:
    - test: s0
  - watch:
    - test: s15
s8:
  test.nop:
  - require:
    - test: s13
    - test: s7
s9:
  test.succeed_with_changes:
  - order: 1
s10:
  test.fail_without_changes:
  - onchanges:
    - test: s9
s11:
  test.fail_with_changes:
  - watch:
    - test: s9
    - test: s0
  - onfail:
    - test: s9
    - test: s7
s12:
  test.fail_without_changes:
  - watch_any:
    - test: s13
  - order: 3
  - check_cmd: 'false'
s13:
  test.fail_without_changes:
  - onfail_all:
    - test: s7
s14:
  test.succeed_with_changes:
  - watch:
    - test: s0
    - test: s1
  - order: first
s15:
  test.succeed_with_changes:
  - watch:
    - test: s9
s16:
  test.succeed_with_changes:
  - watch_any:
    - test: s8
    - test: s11
  - onchanges:
    - test: s10
s17:
  test.fail_without_changes:
  - watch:
    - test: s0
  - onchanges_any:
    - test: s0
    - test: s9
  - onfail:
    - test: s0
