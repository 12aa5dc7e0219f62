s0:
  test.fail_without_changes:
  - prereq:
    - test: s12
s1:
  test.fail_without_changes:
  - watch:
    - test: s15
  - require:
    - test: s15
    - test: s4
  - prereq:
    - test: s6
s2:
  test.succeed_with_changes:
  - require:
    - test: s0
s3:
  test.nop:
  - onfail:
    - test: s9
  - listen:
    - test: s12
s4:
  test.fail_without_changes:
  - order: 1
s5:
  test.succeed_with_changes: []
s6:
  test.fail_with_changes:
  - onfail:
    - test: s2
    - test: s9
s7:
  test.nop:
  - watch:
    - test: s2
s8:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
  - require_in:
    - test: s5
s9:
  test.nop:
  - watch:
    - test: s0
s10:
  test.succeed_with_changes:
  - prereq:
    - test: s12
s11:
  test.fail_without_changes: []
s12:
  test.nop:
  - listen:
    - test: s6
  - onfail_any:
    - test: s15
  - watch_in:
    - test: s11
s13:
  test.succeed_with_changes: []
s14:
  test.succeed_with_changes:
  - onfail:
    - test: s4
  - order: -2
s15:
  test.fail_without_changes:
  - watch:
    - test: s9
  - require_any:
    - test: s0
  - require_in:
    - test: s13
