s0:
  test.nop: []
s1:
  test.succeed_with_changes:
  - watch:
    - test: s5
    - test: s8
    - test: s0
  - prereq:
    - test: s4
  - order: 3
s2:
  test.fail_without_changes:
  - require:
    - test: s1
s3:
  test.nop: []
s4:
  test.succeed_with_changes:
  - order: -1
s5:
  test.succeed_with_changes:
  - listen:
    - test: s7
    - test: s6
  - require_any:
    - test: s0
    - test: s6
s6:
  test.nop:
  - order: -2
s7:
  test.succeed_with_changes:
  - require:
    - test: s5
    - test: s0
  - watch_any:
    - test: s0
s8:
  test.nop:
  - onfail_any:
    - test: s6
  - onchanges:
    - test: s0
    - test: s5
  - onlyif: 'false'
