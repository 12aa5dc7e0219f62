s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
    - test: s7
  - order: last
s1:
  test.succeed_with_changes:
  - check_cmd: 'false'
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - require_any:
    - test: s1
    - test: s7
  - onfail:
    - test: s7
    - test: s1
s4:
  test.succeed_with_changes:
  - require:
    - test: s3
    - test: s10
s5:
  test.fail_with_changes:
  - listen:
    - test: s6
  - onchanges:
    - test: s6
    - test: s7
  - prereq:
    - test: s0
  - order: last
s6:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
s7:
  test.nop:
  - require:
    - test: s1
s8:
  test.succeed_with_changes:
  - onfail_any:
    - test: s2
    - test: s1
  - require:
    - test: s3
    - test: s10
  - listen:
    - test: s0
    - test: s7
  - onfail_in:
    - test: s9
s9:
  test.nop:
  - onfail:
    - test: s8
  - require:
    - test: s6
  - watch:
    - test: s8
s10:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
    - test: s2
  - require:
    - test: s2
  - require_in:
    - test: s11
  - check_cmd: 'true'
s11:
  test.nop:
  - require:
    - test: s7
  - order: 3
