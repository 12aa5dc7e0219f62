s0:
  test.nop:
  - require:
    - test: s1
  - onfail_all:
    - test: s1
  - order: -1
  - check_cmd: 'false'
s1:
  test.nop:
  - onfail:
    - test: s8
s2:
  test.succeed_with_changes:
  - onfail_any:
    - test: s7
  - require_any:
    - test: s5
  - onchanges_any:
    - test: s9
    - test: s0
s3:
  test.fail_without_changes:
  - require:
    - test: s6
  - require_any:
    - test: s6
    - test: s0
    - test: s4
s4:
  test.succeed_with_changes:
  - watch_in:
    - test: s0
  - prereq:
    - test: s5
  - onlyif: 'true'
s5:
  test.succeed_with_changes:
  - listen:
    - test: s7
s6:
  test.succeed_with_changes:
  - onfail:
    - test: s8
    - test: s1
s7:
  test.succeed_with_changes:
  - require_any:
    - test: s4
  - onchanges_any:
    - test: s1
  - onfail:
    - test: s6
    - test: s1
  - prereq:
    - test: s9
s8:
  test.succeed_with_changes: []
s9:
  test.nop:
  - onfail_all:
    - test: s7
    - test: s8
