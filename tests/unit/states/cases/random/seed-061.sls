s0:
  test.nop: []
s1:
  test.fail_without_changes:
  - require_any:
    - test: s14
s2:
  test.nop:
  - onchanges:
    - test: s14
s3:
  test.nop:
  - require:
    - test: s2
  - onchanges_in:
    - test: s17
s4:
  test.fail_with_changes:
  - onchanges:
    - test: s9
  - watch:
    - test: s1
  - require_any:
    - test: s1
  - check_cmd: 'false'
s5:
  test.fail_with_changes:
  - onfail:
    - test: s17
s6:
  test.succeed_with_changes:
  - watch:
    - test: s0
s7:
  test.fail_without_changes:
  - onfail_any:
    - test: s9
  - onchanges:
    - test: s2
  - onfail_in:
    - test: s5
s8:
  test.fail_without_changes:
  - watch:
    - test: s1
  - onfail_in:
    - test: s4
s9:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
  - watch:
    - test: s14
    - test: s2
  - watch_in:
    - test: s13
  - onlyif: 'false'
s10:
  test.succeed_with_changes:
  - onfail_any:
    - test: s4
    - test: s2
s11:
  test.nop:
  - watch:
    - test: s15
    - test: s2
s12:
  test.nop:
  - onchanges:
    - test: s11
    - test: s1
  - onfail:
    - test: s14
  - require_any:
    - test: s11
    - test: s7
s13:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s1
  - watch:
    - test: s1
  - listen:
    - test: s4
s14:
  test.succeed_with_changes:
  - onlyif: 'true'
s15:
  test.fail_without_changes:
  - onchanges_any:
    - test: s14
    - test: s16
  - onfail_all:
    - test: s2
    - test: s3
  - order: 1
s16:
  test.succeed_with_changes:
  - onfail:
    - test: s1
  - listen:
    - test: s15
    - test: s2
  - require_in:
    - test: s17
s17:
  test.nop:
  - watch_in:
    - test: s5
  - order: -2
s18:
  test.nop:
  - listen:
    - test: s15
