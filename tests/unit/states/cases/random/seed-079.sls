s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s10
  - onfail_any:
    - test: s8
    - test: s4
  - require_any:
    - test: s8
s1:
  test.succeed_with_changes: []
s2:
  test.nop:
  - onfail:
    - test: s6
  - require_in:
    - test: s9
s3:
  test.fail_without_changes:
  - onfail:
    - test: s13
s4:
  test.nop:
  - onlyif: 'true'
s5:
  test.succeed_with_changes: []
s6:
  test.nop: []
s7:
  test.fail_without_changes: []
s8:
  test.succeed_with_changes:
  - listen_in:
    - test: s13
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s13
    - test: s3
  - watch:
    - test: s0
  - check_cmd: 'false'
s10:
  test.nop:
  - onfail:
    - test: s12
s11:
  test.nop:
  - onchanges:
    - test: s4
    - test: s1
    - test: s10
s12:
  test.nop:
  - onchanges_any:
    - test: s8
    - test: s4
  - onfail_any:
    - test: s6
    - test: s4
    - test: s8
  - order: first
s13:
  test.nop:
  - onchanges_any:
    - test: s10
    - test: s0
  - order: 2
