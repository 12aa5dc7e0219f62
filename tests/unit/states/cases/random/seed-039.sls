s0:
  test.nop:
  - onfail:
    - test: s2
    - test: s1
  - order: first
s1:
  test.fail_without_changes:
  - onfail_all:
    - test: s6
    - test: s5
  - require:
    - test: s7
  - order: -1
s2:
  test.succeed_with_changes: []
s3:
  test.nop:
  - onfail_any:
    - test: s6
  - watch_any:
    - test: s1
s4:
  test.fail_without_changes:
  - onfail_any:
    - test: s0
    - test: s3
  - require:
    - test: s6
s5:
  test.fail_with_changes:
  - watch:
    - test: s2
  - require:
    - test: s2
s6:
  test.nop:
  - watch:
    - test: s2
    - test: s5
s7:
  test.nop:
  - watch:
    - test: s2
  - order: last
