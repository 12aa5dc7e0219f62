s0:
  test.fail_with_changes:
  - listen:
    - test: s6
s1:
  test.fail_without_changes:
  - onfail_in:
    - test: s4
  - order: last
s2:
  test.succeed_with_changes:
  - require:
    - test: s10
    - test: s7
  - watch:
    - test: s10
s3:
  test.fail_without_changes:
  - watch_in:
    - test: s6
  - order: 3
s4:
  test.succeed_with_changes:
  - order: last
s5:
  test.succeed_with_changes:
  - watch:
    - test: s12
    - test: s7
  - require:
    - test: s3
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s0
    - test: s16
  - onlyif: 'true'
s7:
  test.fail_without_changes: []
s8:
  test.nop:
  - onfail:
    - test: s12
    - test: s16
  - prereq:
    - test: s2
s9:
  test.fail_without_changes:
  - onfail_all:
    - test: s16
    - test: s13
s10:
  test.fail_without_changes:
  - require:
    - test: s7
    - test: s9
s11:
  test.nop:
  - require:
    - test: s8
    - test: s1
s12:
  test.fail_without_changes: []
s13:
  test.nop:
  - watch:
    - test: s12
    - test: s3
  - onchanges_any:
    - test: s7
s14:
  test.nop: []
s15:
  test.fail_with_changes:
  - onfail_any:
    - test: s16
    - test: s7
  - require:
    - test: s8
  - check_cmd: 'true'
s16:
  test.nop:
  - onchanges:
    - test: s7
  - order: 3
