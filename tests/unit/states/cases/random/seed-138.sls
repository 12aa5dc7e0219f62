s0:
  test.nop: []
s1:
  test.succeed_with_changes:
  - onfail:
    - test: s14
s2:
  test.fail_with_changes:
  - onlyif: 'true'
s3:
  test.nop:
  - require:
    - test: s13
    - test: s0
    - test: s12
  - check_cmd: 'true'
s4:
  test.succeed_with_changes:
  - require:
    - test: s8
  - watch_in:
    - test: s6
s5:
  test.succeed_with_changes: []
s6:
  test.fail_with_changes:
  - require_any:
    - test: s4
  - watch_any:
    - test: s9
  - onchanges_any:
    - test: s14
    - test: s8
s7:
  test.succeed_with_changes:
  - onfail_all:
    - test: s3
  - onfail_in:
    - test: s6
s8:
  test.succeed_with_changes:
  - listen:
    - test: s7
s9:
  test.nop:
  - require:
    - test: s2
    - test: s0
s10:
  test.nop:
  - listen:
    - test: s6
  - onfail_any:
    - test: s0
s11:
  test.succeed_with_changes:
  - require:
    - test: s0
    - test: s8
s12:
  test.nop:
  - listen:
    - test: s8
  - listen_in:
    - test: s11
  - order: first
s13:
  test.nop:
  - listen:
    - test: s11
  - watch:
    - test: s9
  - require:
    - test: s9
s14:
  test.nop: []
