s0:
  test.succeed_with_changes: []
s1:
  test.nop:
  - onfail_all:
    - test: s12
  - listen:
    - test: s9
s2:
  test.nop: []
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s2
  - order: 2
s4:
  test.nop:
  - onfail_all:
    - test: s6
    - test: s0
  - onchanges:
    - test: s8
  - prereq:
    - test: s15
  - order: first
s5:
  test.fail_without_changes:
  - require_in:
    - test: s6
s6:
  test.fail_without_changes:
  - require:
    - test: s2
    - test: s16
  - order: first
s7:
  test.nop: []
s8:
  test.succeed_with_changes:
  - require_in:
    - test: s10
s9:
  test.nop:
  - onchanges:
    - test: s3
  - onfail_all:
    - test: s16
  - listen:
    - test: s16
    - test: s10
s10:
  test.nop:
  - watch:
    - test: s8
  - onfail_in:
    - test: s4
s11:
  test.nop:
  - require_any:
    - test: s0
  - require_in:
    - test: s7
  - order: first
s12:
  test.nop:
  - onfail_all:
    - test: s2
  - onchanges:
    - test: s2
s13:
  test.fail_with_changes:
  - onfail:
    - test: s5
  - watch:
    - test: s11
  - listen_in:
    - test: s7
s14:
  test.succeed_with_changes:
  - require:
    - test: s9
s15:
  test.succeed_with_changes: []
s16:
  test.succeed_with_changes:
  - onfail_any:
    - test: s2
    - test: s3
s17:
  test.fail_with_changes:
  - require:
    - test: s16
  - watch:
    - test: s12
    - test: s9
  - watch_in:
    - test: s4
