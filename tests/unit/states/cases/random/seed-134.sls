s0:
  test.fail_with_changes:
  - onchanges:
    - test: s14
s1:
  test.succeed_with_changes:
  - onchanges:
    - test: s11
    - test: s5
  - onfail_all:
    - test: s17
s2:
  test.nop:
  - order: -2
s3:
  test.nop:
  - onfail:
    - test: s9
s4:
  test.nop:
  - onfail:
    - test: s2
    - test: s13
s5:
  test.nop:
  - onchanges:
    - test: s2
  - watch:
    - test: s2
    - test: s11
s6:
  test.nop: []
s7:
  test.fail_with_changes:
  - require:
    - test: s9
  - watch_any:
    - test: s1
s8:
  test.nop:
  - listen_in:
    - test: s18
s9:
  test.fail_with_changes:
  - onfail:
    - test: s11
  - require_any:
    - test: s18
s10:
  test.nop:
  - onchanges:
    - test: s14
  - onfail_any:
    - test: s7
  - require:
    - test: s1
s11:
  test.nop: []
s12:
  test.nop:
  - onfail_all:
    - test: s5
s13:
  test.nop:
  - require:
    - test: s9
s14:
  test.succeed_with_changes:
  - onlyif: 'false'
s15:
  test.fail_with_changes: []
s16:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s0
  - onfail_all:
    - test: s17
s17:
  test.nop:
  - onchanges_any:
    - test: s9
  - onfail_all:
    - test: s15
    - test: s8
s18:
  test.succeed_with_changes:
  - require_in:
    - test: s13
