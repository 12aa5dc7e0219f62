s0:
  test.nop:
  - onfail_any:
    - test: s13
    - test: s6
  - require:
    - test: s15
    - test: s6
  - unless: 'true'
s1:
  test.nop:
  - watch:
    - test: s0
s2:
  test.nop: []
s3:
  test.succeed_with_changes:
  - onfail_any:
    - test: s5
  - onfail:
    - test: s14
    - test: s10
s4:
  test.nop:
  - watch_in:
    - test: s12
s5:
  test.nop:
  - onfail_all:
    - test: s4
  - listen_in:
    - test: s2
s6:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s15
  - onchanges:
    - test: s10
s7:
  test.nop:
  - onchanges_any:
    - test: s12
s8:
  test.fail_with_changes: []
s9:
  test.succeed_with_changes:
  - onfail:
    - test: s10
    - test: s12
  - watch_in:
    - test: s8
s10:
  test.fail_with_changes:
  - onchanges_in:
    - test: s5
  - onlyif: 'true'
s11:
  test.succeed_with_changes:
  - onfail:
    - test: s13
    - test: s15
  - watch_in:
    - test: s3
s12:
  test.fail_without_changes:
  - watch:
    - test: s11
  - onchanges:
    - test: s4
s13:
  test.nop:
  - onfail_any:
    - test: s15
  - check_cmd: 'false'
s14:
  test.succeed_with_changes: []
s15:
  test.fail_with_changes:
  - onlyif: 'false'
s16:
  test.succeed_with_changes:
  - require:
    - test: s9
  - unless: 'false'
  - check_cmd: 'true'
s17:
  test.succeed_with_changes:
  - watch:
    - test: s7
    - test: s13
  - listen_in:
    - test: s3
