s0:
  test.nop:
  - onfail_any:
    - test: s10
s1:
  test.nop:
  - onchanges:
    - test: s16
    - test: s3
  - order: 2
s2:
  test.fail_without_changes:
  - onfail:
    - test: s10
  - watch:
    - test: s12
  - require_in:
    - test: s18
s3:
  test.fail_without_changes:
  - watch:
    - test: s13
  - onchanges:
    - test: s18
  - onfail_all:
    - test: s0
    - test: s2
  - listen_in:
    - test: s9
s4:
  test.nop:
  - watch:
    - test: s5
    - test: s7
  - listen:
    - test: s5
  - require:
    - test: s8
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s15
    - test: s2
s6:
  test.fail_without_changes:
  - require:
    - test: s5
  - order: -1
s7:
  test.succeed_with_changes: []
s8:
  test.fail_without_changes:
  - onfail:
    - test: s10
  - onchanges:
    - test: s12
  - order: last
s9:
  test.succeed_with_changes:
  - require_in:
    - test: s11
  - prereq:
    - test: s20
s10:
  test.succeed_with_changes:
  - listen_in:
    - test: s18
s11:
  test.nop:
  - onchanges_any:
    - test: s1
s12:
  test.succeed_with_changes:
  - listen:
    - test: s6
    - test: s1
s13:
  test.nop:
  - onchanges:
    - test: s5
    - test: s16
  - require:
    - test: s10
    - test: s2
    - test: s16
  - order: -1
s14:
  test.fail_without_changes:
  - onfail:
    - test: s3
s15:
  test.nop:
  - onchanges_any:
    - test: s10
s16:
  test.fail_without_changes: []
s17:
  test.succeed_with_changes:
  - watch:
    - test: s3
  - require:
    - test: s20
    - test: s13
  - order: -1
s18:
  test.fail_with_changes:
  - onchanges:
    - test: s16
s19:
  test.nop:
  - require:
    - test: s12
  - require_any:
    - test: s15
s20:
  test.fail_without_changes:
  - require:
    - test: s7
  - onlyif: 'true'
