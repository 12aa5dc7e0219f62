s0:
  test.nop: []
s1:
  test.nop:
  - watch_in:
    - test: s7
s2:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
  - onchanges_in:
    - test: s0
s3:
  test.succeed_with_changes:
  - onfail_all:
    - test: s2
s4:
  test.nop:
  - onfail_all:
    - test: s1
    - test: s5
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes:
  - watch:
    - test: s1
    - test: s5
s7:
  test.nop:
  - onfail_all:
    - test: s6
s8:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
    - test: s1
  - prereq:
    - test: s2
