s0:
  test.fail_with_changes:
  - prereq:
    - test: s2
s1:
  test.fail_without_changes:
  - onchanges_in:
    - test: s3
s2:
  test.nop:
  - onfail_all:
    - test: s1
    - test: s0
  - onfail:
    - test: s0
  - listen_in:
    - test: s7
s3:
  test.succeed_with_changes:
  - onfail_any:
    - test: s2
  - onchanges:
    - test: s0
  - require:
    - test: s0
    - test: s6
s4:
  test.succeed_with_changes:
  - watch:
    - test: s5
s5:
  test.nop:
  - onfail_any:
    - test: s6
s6:
  test.nop:
  - onchanges:
    - test: s0
s7:
  test.nop:
  - watch:
    - test: s2
  - onchanges_any:
    - test: s5
