s0:
  test.succeed_with_changes: []
s1:
  test.nop:
  - onchanges:
    - test: s0
    - test: s4
    - test: s5
    - test: s7
  - order: last
s2:
  test.nop:
  - require:
    - test: s3
s3:
  test.fail_without_changes: []
s4:
  test.nop: []
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s8
s6:
  test.nop:
  - onchanges:
    - test: s8
  - watch_any:
    - test: s4
  - prereq:
    - test: s9
s7:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s9
s8:
  test.nop:
  - onchanges:
    - test: s4
s9:
  test.succeed_with_changes:
  - listen:
    - test: s6
s10:
  test.fail_without_changes:
  - onfail:
    - test: s8
  - require:
    - test: s0
