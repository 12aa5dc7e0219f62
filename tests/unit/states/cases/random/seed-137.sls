s0:
  test.succeed_with_changes:
  - watch_any:
    - test: s11
    - test: s8
  - require_in:
    - test: s9
  - order: 1
s1:
  test.succeed_with_changes:
  - onfail:
    - test: s4
  - require_any:
    - test: s4
  - order: first
s2:
  test.nop:
  - require:
    - test: s10
    - test: s9
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s12
  - onchanges_any:
    - test: s10
s4:
  test.fail_without_changes:
  - require_any:
    - test: s10
s5:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s2
s6:
  test.fail_without_changes:
  - watch:
    - test: s1
    - test: s4
s7:
  test.succeed_with_changes:
  - require_any:
    - test: s11
    - test: s12
  - prereq:
    - test: s5
s8:
  test.nop:
  - onfail:
    - test: s1
  - onfail_any:
    - test: s10
    - test: s1
s9:
  test.succeed_with_changes:
  - require:
    - test: s7
s10:
  test.succeed_with_changes: []
s11:
  test.succeed_with_changes:
  - onfail:
    - test: s10
s12:
  test.succeed_with_changes: []
