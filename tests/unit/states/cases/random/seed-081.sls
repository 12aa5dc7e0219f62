s0:
  test.fail_with_changes: []
s1:
  test.succeed_with_changes:
  - watch:
    - test: s3
  - onchanges_any:
    - test: s8
s2:
  test.succeed_with_changes:
  - onfail:
    - test: s6
    - test: s16
s3:
  test.nop:
  - onchanges:
    - test: s4
s4:
  test.nop:
  - order: 2
  - check_cmd: 'false'
s5:
  test.fail_with_changes:
  - onfail:
    - test: s6
  - unless: 'true'
  - check_cmd: 'false'
s6:
  test.succeed_with_changes:
  - onfail:
    - test: s1
s7:
  test.nop:
  - onchanges:
    - test: s18
  - watch:
    - test: s1
    - test: s18
  - require_in:
    - test: s12
s8:
  test.nop:
  - onchanges_any:
    - test: s4
s9:
  test.fail_without_changes:
  - onfail:
    - test: s8
    - test: s3
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s8
  - order: last
s11:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s6
    - test: s1
s12:
  test.succeed_with_changes:
  - watch_any:
    - test: s7
  - watch:
    - test: s18
  - onchanges_any:
    - test: s9
s13:
  test.nop:
  - onchanges:
    - test: s5
  - onchanges_in:
    - test: s12
s14:
  test.succeed_with_changes:
  - onfail:
    - test: s0
s15:
  test.nop:
  - onchanges:
    - test: s2
  - watch_any:
    - test: s0
    - test: s1
s16:
  test.nop:
  - require:
    - test: s19
  - watch:
    - test: s11
  - onchanges_in:
    - test: s13
s17:
  test.fail_with_changes:
  - order: 3
s18:
  test.succeed_with_changes:
  - require:
    - test: s8
  - watch:
    - test: s6
  - onfail:
    - test: s6
    - test: s8
s19:
  test.nop:
  - onchanges:
    - test: s5
    - test: s8
  - order: 3
