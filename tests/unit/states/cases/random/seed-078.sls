s0:
  test.succeed_with_changes:
  - watch:
    - test: s12
s1:
  test.succeed_with_changes:
  - require:
    - test: s13
    - test: s3
s2:
  test.succeed_with_changes:
  - watch:
    - test: s9
    - test: s12
s3:
  test.nop:
  - onchanges_in:
    - test: s4
  - order: 2
s4:
  test.succeed_with_changes: []
s5:
  test.nop:
  - order: first
s6:
  test.nop: []
s7:
  test.nop: []
s8:
  test.fail_without_changes:
  - order: 1
s9:
  test.succeed_with_changes:
  - require:
    - test: s7
  - require_in:
    - test: s6
  - order: first
s10:
  test.nop: []
s11:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - onfail_any:
    - test: s14
  - watch:
    - test: s7
s12:
  test.nop:
  - onchanges_any:
    - test: s8
    - test: s7
  - watch:
    - test: s8
s13:
  test.succeed_with_changes:
  - listen:
    - test: s4
    - test: s8
  - onfail_all:
    - test: s14
  - watch_any:
    - test: s5
    - test: s6
  - onfail_in:
    - test: s10
  - order: last
s14:
  test.nop:
  - onchanges_any:
    - test: s8
    - test: s9
