s0:
  test.succeed_with_changes:
  - onfail:
    - test: s4
    - test: s12
  - require:
    - test: s12
  - listen_in:
    - test: s5
s1:
  test.nop:
  - onchanges:
    - test: s12
    - test: s11
    - test: s2
    - test: s14
s2:
  test.fail_without_changes:
  - onfail:
    - test: s11
    - test: s6
  - watch:
    - test: s7
  - order: last
s3:
  test.fail_with_changes:
  - watch_any:
    - test: s8
  - require:
    - test: s11
    - test: s0
  - order: 2
  - onlyif: 'false'
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes:
  - require:
    - test: s3
  - onfail_all:
    - test: s8
s6:
  test.succeed_with_changes:
  - listen:
    - test: s3
  - onchanges_any:
    - test: s13
    - test: s8
  - listen_in:
    - test: s9
s7:
  test.fail_without_changes:
  - watch_any:
    - test: s8
    - test: s11
  - onfail:
    - test: s11
  - require:
    - test: s8
  - onfail_in:
    - test: s10
s8:
  test.succeed_with_changes:
  - onfail:
    - test: s13
  - onchanges:
    - test: s13
  - watch:
    - test: s13
  - onfail_in:
    - test: s10
s9:
  test.succeed_with_changes:
  - watch_any:
    - test: s10
    - test: s0
s10:
  test.fail_with_changes:
  - require:
    - test: s2
    - test: s14
s11:
  test.nop:
  - require:
    - test: s13
    - test: s8
s12:
  test.nop:
  - onfail:
    - test: s13
  - onchanges:
    - test: s7
  - watch_any:
    - test: s13
s13:
  test.nop: []
s14:
  test.fail_with_changes:
  - require:
    - test: s2
  - require_any:
    - test: s11
    - test: s4
  - unless: 'false'
