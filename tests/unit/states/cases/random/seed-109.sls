s0:
  test.fail_without_changes:
  - watch_any:
    - test: s3
    - test: s5
  - unless: 'true'
s1:
  test.nop:
  - watch:
    - test: s4
    - test: s10
s2:
  test.fail_with_changes: []
s3:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s4
    - test: s2
  - check_cmd: 'true'
s4:
  test.fail_without_changes: []
s5:
  test.fail_with_changes:
  - onfail_any:
    - test: s11
s6:
  test.fail_without_changes: []
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s4
s8:
  test.nop:
  - onfail_any:
    - test: s1
  - onchanges:
    - test: s13
    - test: s6
  - require:
    - test: s1
  - order: 2
s9:
  test.fail_with_changes:
  - order: -2
s10:
  test.nop:
  - require:
    - test: s6
s11:
  test.succeed_with_changes:
  - require:
    - test: s9
s12:
  test.succeed_with_changes: []
s13:
  test.fail_without_changes:
  - require:
    - test: s5
    - test: s10
s14:
  test.fail_with_changes:
  - onchanges_in:
    - test: s7
s15:
  test.fail_with_changes:
  - onfail_all:
    - test: s2
    - test: s10
  - onfail_in:
    - test: s7
  - prereq:
    - test: s7
  - check_cmd: 'false'
