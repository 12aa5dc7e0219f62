s0:
  test.nop:
  - onchanges_in:
    - test: s7
s1:
  test.nop:
  - watch:
    - test: s10
    - test: s12
s2:
  test.succeed_with_changes:
  - order: 1
s3:
  test.succeed_with_changes:
  - require_any:
    - test: s7
    - test: s5
  - order: 1
s4:
  test.fail_with_changes:
  - require:
    - test: s10
    - test: s7
s5:
  test.fail_without_changes:
  - onfail_all:
    - test: s9
    - test: s0
  - onchanges_in:
    - test: s6
s6:
  test.succeed_with_changes:
  - onfail:
    - test: s13
  - listen_in:
    - test: s14
s7:
  test.succeed_with_changes: []
s8:
  test.fail_without_changes: []
s9:
  test.succeed_with_changes:
  - require:
    - test: s0
  - order: -1
s10:
  test.nop:
  - require:
    - test: s12
s11:
  test.nop:
  - require:
    - test: s4
s12:
  test.succeed_with_changes:
  - onfail_any:
    - test: s0
  - onlyif: 'true'
s13:
  test.succeed_with_changes:
  - onfail_any:
    - test: s12
  - listen_in:
    - test: s14
  - onlyif: 'false'
s14:
  test.succeed_with_changes:
  - require:
    - test: s13
  - order: -2
