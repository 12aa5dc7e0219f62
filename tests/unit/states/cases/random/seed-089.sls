s0:
  test.nop: []
s1:
  test.nop:
  - require:
    - test: s7
  - onfail_any:
    - test: s7
  - unless: 'true'
s2:
  test.succeed_with_changes:
  - require:
    - test: s7
    - test: s3
  - onchanges:
    - test: s3
    - test: s10
s3:
  test.succeed_with_changes:
  - listen:
    - test: s5
    - test: s9
s4:
  test.fail_without_changes:
  - watch:
    - test: s5
    - test: s3
s5:
  test.fail_with_changes:
  - require:
    - test: s10
    - test: s1
s6:
  test.fail_without_changes:
  - onchanges:
    - test: s8
  - order: last
s7:
  test.nop:
  - require:
    - test: s11
    - test: s6
    - test: s0
  - order: 3
s8:
  test.fail_without_changes:
  - watch:
    - test: s0
s9:
  test.nop:
  - require_in:
    - test: s12
s10:
  test.succeed_with_changes:
  - watch_any:
    - test: s0
s11:
  test.fail_without_changes:
  - watch:
    - test: s6
    - test: s0
s12:
  test.nop:
  - onfail:
    - test: s5
