s0:
  test.succeed_with_changes:
  - watch:
    - test: s2
    - test: s13
s1:
  test.succeed_with_changes:
  - require:
    - test: s0
    - test: s11
s2:
  test.fail_without_changes:
  - onchanges:
    - test: s8
s3:
  test.succeed_with_changes:
  - watch_any:
    - test: s15
  - watch:
    - test: s8
    - test: s6
s4:
  test.nop:
  - onlyif: 'false'
s5:
  test.nop:
  - order: 1
s6:
  test.succeed_with_changes: []
s7:
  test.fail_with_changes:
  - require:
    - test: s15
s8:
  test.succeed_with_changes:
  - onfail_in:
    - test: s6
  - order: first
s9:
  test.succeed_with_changes:
  - listen:
    - test: s0
  - require:
    - test: s7
    - test: s13
  - onchanges:
    - test: s13
  - require_in:
    - test: s6
s10:
  test.nop:
  - watch:
    - test: s9
    - test: s14
  - onfail:
    - test: s15
    - test: s1
s11:
  test.fail_without_changes:
  - require:
    - test: s15
s12:
  test.succeed_with_changes:
  - onfail_all:
    - test: s2
    - test: s8
  - listen:
    - test: s4
  - onchanges:
    - test: s16
s13:
  test.nop:
  - watch:
    - test: s4
  - order: last
s14:
  test.fail_without_changes:
  - onfail:
    - test: s0
s15:
  test.succeed_with_changes:
  - require:
    - test: s13
    - test: s4
s16:
  test.succeed_with_changes:
  - onfail_all:
    - test: s7
  - onchanges:
    - test: s15
    - test: s8
