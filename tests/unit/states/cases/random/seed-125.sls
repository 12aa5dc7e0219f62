s0:
  test.succeed_with_changes:
  - onfail_all:
    - test: s7
    - test: s6
  - onchanges:
    - test: s6
  - onfail_any:
    - test: s7
  - order: -1
s1:
  test.nop: []
s2:
  test.succeed_with_changes:
  - require:
    - test: s14
  - onfail_all:
    - test: s14
  - require_in:
    - test: s13
s3:
  test.fail_without_changes:
  - onfail:
    - test: s8
    - test: s13
s4:
  test.nop:
  - onchanges_any:
    - test: s14
    - test: s6
  - order: 1
s5:
  test.nop:
  - onfail:
    - test: s7
    - test: s1
  - onchanges:
    - test: s8
    - test: s6
    - test: s10
s6:
  test.fail_without_changes: []
s7:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s6
  - watch:
    - test: s6
s8:
  test.fail_without_changes: []
s9:
  test.nop:
  - onchanges:
    - test: s7
  - watch:
    - test: s8
  - listen_in:
    - test: s12
s10:
  test.nop:
  - unless: 'false'
s11:
  test.nop:
  - onchanges_in:
    - test: s12
s12:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - onchanges:
    - test: s5
  - onfail_any:
    - test: s4
s13:
  test.nop:
  - onfail_all:
    - test: s7
  - listen:
    - test: s2
  - onfail:
    - test: s14
s14:
  test.nop:
  - require:
    - test: s7
    - test: s6
