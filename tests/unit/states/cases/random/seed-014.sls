s0:
  test.nop: []
s1:
  test.fail_without_changes:
  - onchanges:
    - test: s2
s2:
  test.succeed_with_changes:
  - watch:
    - test: s0
  - onchanges_in:
    - test: s1
  - prereq:
    - test: s3
s3:
  test.nop:
  - order: 3
s4:
  test.nop:
  - onfail_all:
    - test: s1
    - test: s2
  - onchanges_any:
    - test: s1
    - test: s3
  - onchanges:
    - test: s2
    - test: s0
  - order: first
s5:
  test.succeed_with_changes:
  - require:
    - test: s0
    - test: s1
  - onfail_any:
    - test: s1
    - test: s2
