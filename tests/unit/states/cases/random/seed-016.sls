s0:
  test.fail_without_changes:
  - onchanges:
    - test: s5
  - order: -1
  - check_cmd: 'true'
s1:
  test.succeed_with_changes:
  - require:
    - test: s8
  - prereq:
    - test: s9
s2:
  test.nop:
  - onchanges:
    - test: s8
  - onfail:
    - test: s8
s3:
  test.nop: []
s4:
  test.succeed_with_changes:
  - onfail_any:
    - test: s8
    - test: s0
  - order: -2
s5:
  test.nop:
  - prereq:
    - test: s1
s6:
  test.fail_without_changes: []
s7:
  test.nop: []
s8:
  test.fail_without_changes:
  - require_in:
    - test: s1
  - order: -2
s9:
  test.nop:
  - onchanges:
    - test: s0
  - order: -1
