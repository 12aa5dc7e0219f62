s0:
  test.nop:
  - onfail_any:
    - test: s2
    - test: s8
  - onchanges:
    - test: s3
    - test: s11
  - require_in:
    - test: s5
  - order: -2
s1:
  test.nop: []
s2:
  test.nop:
  - require:
    - test: s3
    - test: s4
  - check_cmd: 'true'
s3:
  test.succeed_with_changes:
  - require:
    - test: s1
  - listen:
    - test: s12
  - unless: 'true'
s4:
  test.succeed_with_changes:
  - watch:
    - test: s1
  - onfail:
    - test: s3
    - test: s14
s5:
  test.nop: []
s6:
  test.fail_with_changes:
  - onchanges:
    - test: s0
    - test: s2
  - listen:
    - test: s9
  - require:
    - test: s14
s7:
  test.succeed_with_changes: []
s8:
  test.nop:
  - require:
    - test: s4
  - watch:
    - test: s3
s9:
  test.nop:
  - prereq:
    - test: s6
s10:
  test.nop:
  - onchanges:
    - test: s1
    - test: s2
  - require:
    - test: s7
  - listen_in:
    - test: s5
s11:
  test.nop:
  - watch:
    - test: s2
    - test: s3
s12:
  test.fail_with_changes:
  - require_any:
    - test: s9
    - test: s13
  - onchanges_any:
    - test: s4
    - test: s7
s13:
  test.fail_without_changes:
  - onfail_any:
    - test: s2
  - watch:
    - test: s2
  - onchanges_any:
    - test: s4
  - onlyif: 'true'
s14:
  test.succeed_with_changes:
  - watch_any:
    - test: s1
