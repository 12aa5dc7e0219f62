s0:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - order: 2
s1:
  test.succeed_with_changes:
  - onfail_in:
    - test: s4
  - order: last
s2:
  test.succeed_with_changes:
  - onfail_any:
    - test: s7
  - require:
    - test: s7
s3:
  test.fail_without_changes: []
s4:
  test.succeed_with_changes:
  - onfail_all:
    - test: s7
    - test: s6
    - test: s11
  - watch:
    - test: s1
    - test: s8
s5:
  test.nop:
  - unless: 'false'
  - check_cmd: 'false'
s6:
  test.nop:
  - listen:
    - test: s0
    - test: s4
  - onfail_any:
    - test: s5
    - test: s10
s7:
  test.nop:
  - onchanges_any:
    - test: s5
s8:
  test.succeed_with_changes:
  - order: first
s9:
  test.succeed_with_changes:
  - require:
    - test: s3
  - onfail_any:
    - test: s7
s10:
  test.fail_without_changes: []
s11:
  test.succeed_with_changes: []
