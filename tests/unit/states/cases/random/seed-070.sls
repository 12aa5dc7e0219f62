s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s12
  - require:
    - test: s6
    - test: s12
s1:
  test.nop:
  - require:
    - test: s9
s2:
  test.fail_with_changes:
  - onfail:
    - test: s5
    - test: s6
s3:
  test.nop:
  - watch:
    - test: s6
s4:
  test.fail_without_changes:
  - require_any:
    - test: s2
s5:
  test.succeed_with_changes:
  - require:
    - test: s12
  - order: last
s6:
  test.fail_without_changes:
  - watch_in:
    - test: s4
s7:
  test.succeed_with_changes:
  - watch:
    - test: s9
  - onchanges:
    - test: s1
    - test: s3
  - order: -1
s8:
  test.nop:
  - order: 3
  - onlyif: 'true'
s9:
  test.succeed_with_changes:
  - require:
    - test: s8
    - test: s3
  - require_any:
    - test: s6
s10:
  test.succeed_with_changes:
  - require_any:
    - test: s8
s11:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s12
    - test: s2
s12:
  test.nop:
  - onchanges_any:
    - test: s6
    - test: s8
