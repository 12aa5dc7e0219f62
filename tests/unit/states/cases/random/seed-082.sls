s0:
  test.nop:
  - onchanges:
    - test: s5
    - test: s3
s1:
  test.succeed_with_changes:
  - order: 1
s2:
  test.nop:
  - require_any:
    - test: s10
  - onchanges:
    - test: s9
s3:
  test.nop:
  - require:
    - test: s5
    - test: s11
  - onfail:
    - test: s13
s4:
  test.succeed_with_changes: []
s5:
  test.nop:
  - require:
    - test: s6
  - watch_any:
    - test: s6
  - require_any:
    - test: s6
s6:
  test.fail_without_changes:
  - onfail_in:
    - test: s12
s7:
  test.nop:
  - onchanges:
    - test: s2
    - test: s3
    - test: s13
s8:
  test.nop:
  - onfail_any:
    - test: s13
  - watch:
    - test: s5
    - test: s2
s9:
  test.fail_without_changes: []
s10:
  test.succeed_with_changes: []
s11:
  test.nop:
  - watch_any:
    - test: s6
  - unless: 'false'
s12:
  test.fail_without_changes:
  - order: -1
s13:
  test.succeed_with_changes: []
