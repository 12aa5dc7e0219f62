s0:
  test.fail_without_changes:
  - onfail_any:
    - test: s9
  - require:
    - test: s9
s1:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s5
  - order: 1
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s4
  - check_cmd: 'true'
s4:
  test.fail_with_changes:
  - onchanges_in:
    - test: s18
s5:
  test.fail_without_changes:
  - require:
    - test: s6
  - onfail:
    - test: s17
    - test: s15
    - test: s6
s6:
  test.nop:
  - watch_any:
    - test: s3
    - test: s4
  - watch:
    - test: s3
    - test: s4
s7:
  test.succeed_with_changes:
  - onfail_all:
    - test: s4
    - test: s0
s8:
  test.succeed_with_changes:
  - require:
    - test: s3
  - watch:
    - test: s4
s9:
  test.fail_without_changes:
  - check_cmd: 'false'
s10:
  test.nop:
  - onchanges:
    - test: s4
  - onfail:
    - test: s17
  - listen:
    - test: s15
s11:
  test.nop: []
s12:
  test.fail_without_changes:
  - onfail_any:
    - test: s6
    - test: s17
  - onlyif: 'true'
s13:
  test.succeed_with_changes:
  - watch:
    - test: s5
    - test: s12
  - onchanges_in:
    - test: s18
s14:
  test.fail_with_changes:
  - onfail:
    - test: s16
s15:
  test.nop:
  - require:
    - test: s2
    - test: s0
    - test: s3
  - watch_in:
    - test: s7
s16:
  test.succeed_with_changes:
  - onfail_any:
    - test: s5
  - prereq:
    - test: s14
  - check_cmd: 'true'
s17:
  test.succeed_with_changes:
  - listen:
    - test: s14
    - test: s6
  - require_in:
    - test: s10
s18:
  test.nop:
  - require:
    - test: s4
    - test: s16
  - unless: 'true'
