s0:
  test.succeed_with_changes: []
s1:
  test.succeed_with_changes:
  - order: 2
s2:
  test.fail_without_changes:
  - watch:
    - test: s17
  - onfail_all:
    - test: s4
    - test: s5
  - watch_in:
    - test: s16
s3:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s9
  - watch:
    - test: s19
    - test: s17
  - watch_in:
    - test: s1
s4:
  test.nop:
  - unless: 'false'
s5:
  test.nop:
  - onfail_all:
    - test: s15
s6:
  test.succeed_with_changes:
  - onfail_any:
    - test: s0
s7:
  test.fail_without_changes:
  - onchanges:
    - test: s18
s8:
  test.succeed_with_changes:
  - onchanges:
    - test: s2
    - test: s3
    - test: s19
    - test: s14
  - watch_any:
    - test: s11
    - test: s19
s9:
  test.succeed_with_changes:
  - onfail_any:
    - test: s0
    - test: s5
  - unless: 'true'
s10:
  test.nop: []
s11:
  test.nop:
  - onfail_all:
    - test: s0
  - onchanges:
    - test: s0
    - test: s17
s12:
  test.nop:
  - require_any:
    - test: s6
s13:
  test.fail_without_changes:
  - onfail:
    - test: s5
  - require:
    - test: s6
s14:
  test.nop:
  - watch_in:
    - test: s13
  - onlyif: 'false'
s15:
  test.nop: []
s16:
  test.succeed_with_changes:
  - listen:
    - test: s2
    - test: s3
s17:
  test.succeed_with_changes:
  - listen:
    - test: s16
  - onfail_all:
    - test: s6
  - check_cmd: 'false'
s18:
  test.succeed_with_changes:
  - onfail_all:
    - test: s0
    - test: s20
  - order: 2
s19:
  test.succeed_with_changes:
  - onfail:
    - test: s5
s20:
  test.nop:
  - prereq:
    - test: s12
  - unless: 'false'
