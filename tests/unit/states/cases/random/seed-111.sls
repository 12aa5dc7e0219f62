s0:
  test.succeed_with_changes:
  - require_any:
    - test: s9
    - test: s8
  - onchanges:
    - test: s9
    - test: s8
s1:
  test.succeed_with_changes:
  - order: first
s2:
  test.succeed_with_changes:
  - onfail_all:
    - test: s0
s3:
  test.nop:
  - onfail_any:
    - test: s1
    - test: s12
    - test: s10
    - test: s11
  - watch:
    - test: s2
s4:
  test.fail_without_changes:
  - onfail_any:
    - test: s1
  - watch:
    - test: s8
s5:
  test.succeed_with_changes: []
s6:
  test.nop: []
s7:
  test.succeed_with_changes:
  - watch:
    - test: s1
  - onfail_any:
    - test: s4
  - watch_in:
    - test: s5
s8:
  test.succeed_with_changes: []
s9:
  test.fail_without_changes:
  - watch_any:
    - test: s8
s10:
  test.fail_without_changes:
  - require:
    - test: s13
  - watch:
    - test: s13
    - test: s8
  - require_in:
    - test: s5
s11:
  test.succeed_with_changes:
  - onchanges:
    - test: s9
    - test: s13
  - order: last
s12:
  test.succeed_with_changes: []
s13:
  test.fail_without_changes:
  - onlyif: 'false'
s14:
  test.nop:
  - onchanges:
    - test: s0
