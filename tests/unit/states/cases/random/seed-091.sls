s0:
  test.nop:
  - onchanges_in:
    - test: s8
s1:
  test.nop:
  - listen:
    - test: s5
    - test: s7
    - test: s3
s2:
  test.succeed_with_changes:
  - require:
    - test: s0
    - test: s7
  - order: 3
s3:
  test.fail_with_changes:
  - watch:
    - test: s12
    - test: s4
  - onfail:
    - test: s1
s4:
  test.fail_with_changes:
  - watch:
    - test: s12
    - test: s0
  - order: 1
s5:
  test.fail_without_changes:
  - require:
    - test: s12
    - test: s3
  - watch:
    - test: s3
  - watch_in:
    - test: s6
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s5
  - order: first
s7:
  test.nop:
  - require:
    - test: s4
s8:
  test.nop:
  - watch:
    - test: s12
    - test: s0
s9:
  test.nop:
  - onfail:
    - test: s7
  - listen:
    - test: s4
s10:
  test.succeed_with_changes:
  - check_cmd: 'true'
s11:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
    - test: s5
s12:
  test.fail_with_changes:
  - watch:
    - test: s0
