s0:
  test.succeed_with_changes:
  - require_any:
    - test: s4
  - watch_any:
    - test: s4
  - onfail_any:
    - test: s4
s1:
  test.succeed_with_changes:
  - watch_any:
    - test: s8
s2:
  test.fail_without_changes:
  - watch:
    - test: s11
  - prereq:
    - test: s15
s3:
  test.nop:
  - onchanges_any:
    - test: s10
  - onfail_all:
    - test: s20
  - require_in:
    - test: s19
s4:
  test.nop: []
s5:
  test.nop: []
s6:
  test.succeed_with_changes:
  - require_any:
    - test: s12
  - onchanges:
    - test: s9
  - onchanges_in:
    - test: s14
s7:
  test.nop:
  - require:
    - test: s8
    - test: s20
  - onfail_all:
    - test: s13
s8:
  test.fail_with_changes:
  - require:
    - test: s0
    - test: s12
  - prereq:
    - test: s7
s9:
  test.nop:
  - onchanges:
    - test: s0
  - require:
    - test: s4
s10:
  test.nop:
  - watch_any:
    - test: s0
    - test: s4
  - require:
    - test: s11
    - test: s6
  - prereq:
    - test: s5
s11:
  test.nop:
  - require:
    - test: s9
  - onfail_any:
    - test: s9
    - test: s0
  - order: -2
s12:
  test.succeed_with_changes: []
s13:
  test.fail_without_changes:
  - order: first
s14:
  test.succeed_with_changes:
  - watch:
    - test: s11
    - test: s19
  - require:
    - test: s6
  - listen_in:
    - test: s1
  - order: 2
s15:
  test.succeed_with_changes:
  - watch:
    - test: s9
    - test: s10
  - require:
    - test: s12
  - onchanges:
    - test: s17
s16:
  test.fail_without_changes:
  - onchanges:
    - test: s8
    - test: s9
    - test: s0
s17:
  test.succeed_with_changes: []
s18:
  test.fail_with_changes:
  - onchanges:
    - test: s4
  - require:
    - test: s0
s19:
  test.fail_without_changes:
  - watch:
    - test: s2
    - test: s4
    - test: s16
  - onfail_all:
    - test: s2
  - onlyif: 'false'
  - check_cmd: 'true'
s20:
  test.succeed_with_changes: []
