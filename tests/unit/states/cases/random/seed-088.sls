s0:
  test.nop:
  - watch_any:
    - test: s7
  - watch:
    - test: s11
s1:
  test.fail_with_changes:
  - watch:
    - test: s4
  - check_cmd: 'false'
s2:
  test.nop:
  - onfail_all:
    - test: s9
  - require_in:
    - test: s6
s3:
  test.succeed_with_changes: []
s4:
  test.nop: []
s5:
  test.nop:
  - onchanges:
    - test: s8
    - test: s11
  - onfail:
    - test: s9
  - onchanges_in:
    - test: s10
  - check_cmd: 'false'
s6:
  test.nop:
  - onchanges:
    - test: s1
  - onfail:
    - test: s7
    - test: s8
s7:
  test.nop:
  - require:
    - test: s3
    - test: s12
  - onfail_any:
    - test: s9
  - onchanges_in:
    - test: s16
s8:
  test.fail_without_changes:
  - watch:
    - test: s17
  - require_any:
    - test: s3
    - test: s12
s9:
  test.succeed_with_changes: []
s10:
  test.fail_with_changes:
  - require_any:
    - test: s14
    - test: s15
  - listen:
    - test: s13
  - watch:
    - test: s7
s11:
  test.succeed_with_changes:
  - watch:
    - test: s9
    - test: s3
s12:
  test.fail_without_changes:
  - watch:
    - test: s9
  - order: last
  - unless: 'false'
s13:
  test.nop:
  - onchanges:
    - test: s4
  - require_any:
    - test: s12
s14:
  test.succeed_with_changes: []
s15:
  test.nop:
  - onchanges_any:
    - test: s2
  - onchanges:
    - test: s12
    - test: s4
    - test: s7
s16:
  test.fail_with_changes:
  - onfail:
    - test: s9
    - test: s12
s17:
  test.succeed_with_changes:
  - require_any:
    - test: s12
  - onlyif: 'false'
