s0:
  test.fail_with_changes:
  - require:
    - test: s3
    - test: s1
  - onchanges:
    - test: s1
  - order: first
s1:
  test.succeed_with_changes: []
s2:
  test.nop:
  - watch:
    - test: s4
s3:
  test.nop:
  - order: 1
s4:
  test.succeed_with_changes:
  - onfail:
    - test: s5
  - onfail_all:
    - test: s5
  - order: 1
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes:
  - listen:
    - test: s5
    - test: s8
  - require_in:
    - test: s3
s7:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
    - test: s1
  - require_in:
    - test: s8
s8:
  test.fail_without_changes:
  - onchanges_any:
    - test: s7
s9:
  test.fail_without_changes:
  - watch:
    - test: s7
