s0:
  test.fail_without_changes:
  - listen:
    - test: s11
s1:
  test.succeed_with_changes:
  - require:
    - test: s11
    - test: s9
  - prereq:
    - test: s0
s2:
  test.succeed_with_changes:
  - require:
    - test: s6
    - test: s1
  - listen:
    - test: s10
    - test: s0
  - order: 3
s3:
  test.succeed_with_changes:
  - listen:
    - test: s11
  - require:
    - test: s11
s4:
  test.nop:
  - onfail:
    - test: s6
s5:
  test.succeed_with_changes:
  - watch_any:
    - test: s0
  - onchanges:
    - test: s9
    - test: s0
  - order: 3
s6:
  test.succeed_with_changes: []
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s11
s8:
  test.nop:
  - watch:
    - test: s3
  - require:
    - test: s6
  - require_in:
    - test: s4
  - order: 1
s9:
  test.succeed_with_changes: []
s10:
  test.fail_with_changes:
  - onfail_any:
    - test: s6
    - test: s5
  - onchanges_any:
    - test: s2
    - test: s8
  - onchanges:
    - test: s0
    - test: s5
s11:
  test.succeed_with_changes:
  - onfail_all:
    - test: s9
  - order: 1
