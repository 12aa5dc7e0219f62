s0:
  test.fail_without_changes:
  - listen:
    - test: s1
  - watch_any:
    - test: s13
    - test: s9
  - onlyif: 'true'
s1:
  test.nop: []
s2:
  test.succeed_with_changes: []
s3:
  test.fail_without_changes:
  - listen:
    - test: s6
  - require:
    - test: s11
    - test: s8
  - require_any:
    - test: s15
s4:
  test.succeed_with_changes:
  - require_in:
    - test: s14
s5:
  test.fail_without_changes:
  - require:
    - test: s8
    - test: s11
  - listen:
    - test: s16
  - watch_in:
    - test: s0
s6:
  test.nop: []
s7:
  test.succeed_with_changes: []
s8:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s11
  - require:
    - test: s11
  - listen:
    - test: s7
s9:
  test.succeed_with_changes:
  - onfail_all:
    - test: s15
s10:
  test.succeed_with_changes:
  - onfail_any:
    - test: s15
    - test: s2
  - require:
    - test: s5
s11:
  test.succeed_with_changes: []
s12:
  test.fail_without_changes:
  - require:
    - test: s15
    - test: s7
s13:
  test.nop:
  - watch:
    - test: s2
s14:
  test.succeed_with_changes:
  - require:
    - test: s7
  - onfail:
    - test: s4
  - order: first
  - unless: 'false'
s15:
  test.fail_without_changes:
  - watch:
    - test: s2
    - test: s8
  - onfail:
    - test: s5
  - order: 3
s16:
  test.nop:
  - onchanges:
    - test: s15
  - listen_in:
    - test: s12
