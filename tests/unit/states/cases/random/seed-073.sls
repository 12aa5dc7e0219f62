s0:
  test.succeed_with_changes:
  - order: 1
s1:
  test.nop:
  - require:
    - test: s10
  - order: -1
s2:
  test.fail_without_changes:
  - require:
    - test: s6
s3:
  test.succeed_with_changes:
  - require:
    - test: s13
    - test: s4
    - test: s2
s4:
  test.nop:
  - onfail:
    - test: s6
  - require_in:
    - test: s8
  - order: -1
s5:
  test.nop:
  - onfail_any:
    - test: s6
  - onchanges:
    - test: s11
  - check_cmd: 'true'
s6:
  test.succeed_with_changes:
  - listen:
    - test: s9
s7:
  test.nop:
  - watch:
    - test: s0
s8:
  test.succeed_with_changes:
  - order: last
s9:
  test.succeed_with_changes:
  - require_any:
    - test: s1
s10:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s11
s11:
  test.succeed_with_changes: []
s12:
  test.succeed_with_changes: []
s13:
  test.fail_without_changes:
  - listen_in:
    - test: s2
s14:
  test.nop:
  - require:
    - test: s11
  - onchanges_any:
    - test: s6
  - prereq:
    - test: s1
s15:
  test.succeed_with_changes:
  - require_any:
    - test: s14
  - watch:
    - test: s0
    - test: s14
  - onfail:
    - test: s0
    - test: s12
