s0:
  test.succeed_with_changes:
  - onfail:
    - test: s9
s1:
  test.nop:
  - watch:
    - test: s8
  - listen:
    - test: s13
  - check_cmd: 'false'
s2:
  test.nop:
  - watch:
    - test: s0
s3:
  test.fail_without_changes: []
s4:
  test.fail_with_changes:
  - onfail_all:
    - test: s8
    - test: s11
  - onfail:
    - test: s9
s5:
  test.succeed_with_changes:
  - onfail_all:
    - test: s8
  - watch:
    - test: s9
  - onchanges_in:
    - test: s2
s6:
  test.succeed_with_changes:
  - onfail:
    - test: s10
  - require_in:
    - test: s7
s7:
  test.fail_without_changes: []
s8:
  test.nop:
  - listen:
    - test: s12
  - onchanges_any:
    - test: s11
  - onfail_any:
    - test: s11
  - order: last
s9:
  test.succeed_with_changes:
  - require:
    - test: s12
    - test: s8
  - onchanges_any:
    - test: s12
s10:
  test.fail_with_changes: []
s11:
  test.succeed_with_changes:
  - require_in:
    - test: s6
  - order: -2
s12:
  test.fail_without_changes:
  - onchanges:
    - test: s8
  - check_cmd: 'true'
s13:
  test.fail_with_changes:
  - onfail:
    - test: s8
    - test: s0
  - watch:
    - test: s0
