s0:
  test.fail_without_changes:
  - onchanges:
    - test: s10
  - order: 1
s1:
  test.fail_with_changes: []
s2:
  test.fail_without_changes:
  - watch:
    - test: s0
s3:
  test.succeed_with_changes:
  - require:
    - test: s2
  - watch_any:
    - test: s0
    - test: s10
  - order: 3
  - unless: 'true'
s4:
  test.succeed_with_changes:
  - prereq:
    - test: s11
  - order: last
  - check_cmd: 'false'
s5:
  test.nop: []
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s9
s7:
  test.succeed_with_changes:
  - require:
    - test: s2
    - test: s5
    - test: s4
    - test: s10
  - listen_in:
    - test: s6
s8:
  test.succeed_with_changes: []
s9:
  test.succeed_with_changes:
  - check_cmd: 'false'
s10:
  test.fail_without_changes:
  - require_in:
    - test: s11
s11:
  test.succeed_with_changes:
  - require:
    - test: s4
    - test: s10
  - require_in:
    - test: s7
  - prereq:
    - test: s6
  - check_cmd: 'true'
s12:
  test.succeed_with_changes:
  - onfail:
    - test: s5
    - test: s10
  - onchanges:
    - test: s10
    - test: s0
  - require_any:
    - test: s0
  - order: 3
