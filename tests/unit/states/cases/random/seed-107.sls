s0:
  test.fail_without_changes: []
s1:
  test.nop:
  - watch:
    - test: s8
    - test: s2
  - unless: 'true'
s2:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
s3:
  test.nop: []
s4:
  test.succeed_with_changes:
  - require:
    - test: s13
    - test: s3
s5:
  test.succeed_with_changes:
  - check_cmd: 'true'
s6:
  test.succeed_with_changes:
  - require:
    - test: s13
    - test: s5
  - onchanges:
    - test: s3
s7:
  test.succeed_with_changes:
  - onfail_all:
    - test: s8
  - watch_any:
    - test: s2
s8:
  test.nop: []
s9:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - order: -1
s10:
  test.nop:
  - onchanges:
    - test: s4
  - onfail:
    - test: s2
s11:
  test.nop:
  - listen_in:
    - test: s14
s12:
  test.nop:
  - watch:
    - test: s4
  - order: 2
s13:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
    - test: s2
  - onlyif: 'false'
s14:
  test.nop:
  - watch:
    - test: s3
    - test: s6
  - check_cmd: 'false'
