s0:
  test.nop:
  - onfail:
    - test: s18
  - order: -2
s1:
  test.fail_with_changes:
  - onchanges_in:
    - test: s16
s2:
  test.succeed_with_changes:
  - require_any:
    - test: s18
  - order: 3
s3:
  test.succeed_with_changes:
  - watch:
    - test: s9
    - test: s18
  - onchanges_any:
    - test: s9
    - test: s18
s4:
  test.nop:
  - watch_any:
    - test: s14
  - onchanges_in:
    - test: s16
s5:
  test.succeed_with_changes:
  - onfail_any:
    - test: s9
    - test: s14
  - listen:
    - test: s2
    - test: s11
  - onfail:
    - test: s9
s6:
  test.fail_with_changes: []
s7:
  test.succeed_with_changes:
  - require_any:
    - test: s8
    - test: s3
  - onchanges:
    - test: s3
s8:
  test.nop:
  - require:
    - test: s3
    - test: s18
    - test: s9
  - watch:
    - test: s18
s9:
  test.succeed_with_changes: []
s10:
  test.succeed_with_changes:
  - watch:
    - test: s8
    - test: s18
  - listen:
    - test: s19
s11:
  test.nop:
  - onfail:
    - test: s8
s12:
  test.fail_without_changes:
  - listen:
    - test: s1
  - onfail_in:
    - test: s11
s13:
  test.fail_without_changes: []
s14:
  test.nop:
  - watch:
    - test: s3
s15:
  test.fail_without_changes:
  - require:
    - test: s4
s16:
  test.nop: []
s17:
  test.fail_without_changes:
  - listen_in:
    - test: s11
  - order: 1
s18:
  test.fail_without_changes: []
s19:
  test.nop:
  - watch:
    - test: s7
  - onlyif: 'false'
s20:
  test.nop: []
