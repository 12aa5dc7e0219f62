s0:
  test.fail_with_changes:
  - onfail_any:
    - test: s16
    - test: s6
  - order: first
  - onlyif: 'false'
s1:
  test.fail_with_changes:
  - listen:
    - test: s16
s2:
  test.succeed_with_changes:
  - onfail_all:
    - test: s6
    - test: s5
  - require:
    - test: s16
s3:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - onchanges:
    - test: s9
  - require_in:
    - test: s12
s4:
  test.succeed_with_changes:
  - onfail:
    - test: s16
    - test: s9
  - onchanges_in:
    - test: s2
s5:
  test.nop: []
s6:
  test.succeed_with_changes:
  - watch:
    - test: s9
  - onchanges:
    - test: s15
  - require:
    - test: s9
    - test: s5
s7:
  test.fail_without_changes:
  - watch:
    - test: s5
  - require:
    - test: s5
    - test: s9
  - prereq:
    - test: s10
  - order: first
s8:
  test.succeed_with_changes:
  - watch_any:
    - test: s5
    - test: s9
  - listen:
    - test: s18
s9:
  test.nop:
  - require:
    - test: s5
s10:
  test.nop:
  - onfail_all:
    - test: s16
    - test: s17
s11:
  test.nop:
  - watch:
    - test: s16
  - onchanges:
    - test: s6
  - onfail_in:
    - test: s12
s12:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - order: 3
s13:
  test.nop: []
s14:
  test.nop:
  - watch:
    - test: s1
s15:
  test.succeed_with_changes:
  - require:
    - test: s5
s16:
  test.succeed_with_changes:
  - onfail:
    - test: s6
  - watch:
    - test: s13
    - test: s6
s17:
  test.succeed_with_changes:
  - onfail:
    - test: s1
  - onchanges:
    - test: s7
    - test: s8
    - test: s9
  - onfail_in:
    - test: s0
  - order: 2
s18:
  test.succeed_with_changes:
  - onfail_all:
    - test: s11
