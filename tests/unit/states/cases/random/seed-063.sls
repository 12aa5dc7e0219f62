s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s16
  - require:
    - test: s16
s1:
  test.fail_without_changes:
  - require:
    - test: s0
  - check_cmd: 'true'
s2:
  test.succeed_with_changes: []
s3:
  test.nop:
  - require:
    - test: s2
  - watch:
    - test: s5
    - test: s7
s4:
  test.nop:
  - watch:
    - test: s17
  - onfail:
    - test: s12
    - test: s2
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s16
s6:
  test.fail_with_changes:
  - require:
    - test: s12
    - test: s0
  - onlyif: 'false'
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s17
  - onchanges:
    - test: s17
  - order: -1
s8:
  test.nop:
  - require:
    - test: s10
    - test: s6
    - test: s13
  - onfail:
    - test: s13
s9:
  test.nop:
  - onfail:
    - test: s5
  - onchanges:
    - test: s2
  - require:
    - test: s15
  - onchanges_in:
    - test: s14
s10:
  test.succeed_with_changes:
  - watch:
    - test: s5
  - onfail:
    - test: s3
  - require_in:
    - test: s9
s11:
  test.succeed_with_changes:
  - listen:
    - test: s13
  - onchanges:
    - test: s18
    - test: s17
s12:
  test.fail_without_changes:
  - order: 1
s13:
  test.nop:
  - onchanges_any:
    - test: s16
    - test: s4
    - test: s2
  - watch_any:
    - test: s18
    - test: s17
s14:
  test.fail_without_changes:
  - onfail_any:
    - test: s5
s15:
  test.succeed_with_changes:
  - onfail_all:
    - test: s2
  - require:
    - test: s17
  - order: -1
  - onlyif: 'false'
s16:
  test.succeed_with_changes:
  - require:
    - test: s17
    - test: s7
s17:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s16
s18:
  test.succeed_with_changes:
  - require:
    - test: s17
