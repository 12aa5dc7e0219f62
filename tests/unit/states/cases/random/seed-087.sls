s0:
  test.fail_with_changes:
  - unless: 'false'
s1:
  test.succeed_with_changes: []
s2:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s10
  - watch:
    - test: s12
    - test: s10
  - prereq:
    - test: s5
  - order: -2
  - check_cmd: 'false'
s3:
  test.fail_without_changes:
  - listen_in:
    - test: s11
s4:
  test.fail_without_changes:
  - onchanges:
    - test: s13
  - onfail:
    - test: s10
s5:
  test.nop:
  - watch:
    - test: s0
  - onchanges:
    - test: s10
s6:
  test.nop:
  - require:
    - test: s12
    - test: s9
  - onfail:
    - test: s9
  - order: first
  - unless: 'false'
s7:
  test.fail_without_changes:
  - require:
    - test: s9
  - onfail:
    - test: s2
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s9
    - test: s2
s9:
  test.nop:
  - watch:
    - test: s12
  - onfail_in:
    - test: s1
s10:
  test.nop: []
s11:
  test.fail_without_changes:
  - require:
    - test: s10
    - test: s5
  - onlyif: 'true'
s12:
  test.fail_without_changes: []
s13:
  test.nop:
  - onchanges:
    - test: s10
    - test: s0
    - test: s9
  - watch_in:
    - test: s5
