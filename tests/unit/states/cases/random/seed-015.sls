s0:
  test.succeed_with_changes: []
s1:
  test.succeed_with_changes:
  - require:
    - test: s3
s2:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
s3:
  test.nop: []
s4:
  test.nop:
  - watch:
    - test: s2
    - test: s6
s5:
  test.succeed_with_changes:
  - prereq:
    - test: s4
s6:
  test.succeed_with_changes:
  - require:
    - test: s3
  - onchanges:
    - test: s3
s7:
  test.succeed_with_changes:
  - watch:
    - test: s6
  - require_any:
    - test: s1
  - onchanges:
    - test: s1
    - test: s2
  - onfail_in:
    - test: s0
