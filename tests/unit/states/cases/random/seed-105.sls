s0:
  test.nop:
  - watch:
    - test: s12
    - test: s10
  - onchanges_in:
    - test: s18
s1:
  test.succeed_with_changes:
  - listen:
    - test: s19
    - test: s16
  - onfail_all:
    - test: s14
s2:
  test.nop:
  - onchanges:
    - test: s8
    - test: s16
  - watch:
    - test: s15
s3:
  test.fail_without_changes:
  - watch:
    - test: s6
s4:
  test.succeed_with_changes:
  - require_in:
    - test: s9
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
  - require:
    - test: s7
  - order: -2
  - unless: 'true'
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s15
s7:
  test.fail_with_changes:
  - order: last
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s17
    - test: s15
  - watch:
    - test: s17
s9:
  test.nop:
  - unless: 'true'
s10:
  test.fail_with_changes:
  - onchanges_any:
    - test: s12
  - onfail_any:
    - test: s12
  - watch_in:
    - test: s9
s11:
  test.nop: []
s12:
  test.succeed_with_changes:
  - require:
    - test: s15
    - test: s17
  - onchanges_any:
    - test: s7
    - test: s15
  - listen_in:
    - test: s20
s13:
  test.nop:
  - order: 3
s14:
  test.nop: []
s15:
  test.succeed_with_changes:
  - onfail_all:
    - test: s17
  - watch:
    - test: s17
  - onchanges:
    - test: s17
s16:
  test.succeed_with_changes:
  - onfail_all:
    - test: s14
  - require:
    - test: s7
    - test: s8
  - onfail_in:
    - test: s6
s17:
  test.succeed_with_changes:
  - order: 2
  - onlyif: 'false'
s18:
  test.fail_without_changes:
  - onchanges:
    - test: s14
  - listen_in:
    - test: s11
s19:
  test.succeed_with_changes:
  - order: first
  - onlyif: 'true'
s20:
  test.fail_without_changes:
  - onfail_any:
    - test: s12
  - watch:
    - test: s7
    - test: s1
    - test: s17
