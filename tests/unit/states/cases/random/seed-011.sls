s0:
  test.fail_without_changes:
  - watch:
    - test: s2
s1:
  test.succeed_with_changes:
  - prereq:
    - test: s3
  - check_cmd: 'false'
s2:
  test.succeed_with_changes:
  - check_cmd: 'true'
s3:
  test.nop:
  - watch_any:
    - test: s9
    - test: s0
s4:
  test.nop:
  - require:
    - test: s6
    - test: s0
  - order: 2
s5:
  test.nop:
  - onchanges:
    - test: s2
  - prereq:
    - test: s8
s6:
  test.nop:
  - onfail_in:
    - test: s4
s7:
  test.nop:
  - require_any:
    - test: s6
  - watch_any:
    - test: s0
s8:
  test.fail_without_changes:
  - require_any:
    - test: s11
    - test: s10
  - order: last
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s0
  - require:
    - test: s2
s10:
  test.fail_without_changes:
  - watch:
    - test: s2
    - test: s3
  - onchanges:
    - test: s3
    - test: s2
s11:
  test.succeed_with_changes:
  - prereq:
    - test: s7
