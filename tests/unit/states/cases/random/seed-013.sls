s0:
  test.nop:
  - require:
    - test: s3
  - prereq:
    - test: s2
  - check_cmd: 'false'
s1:
  test.nop: []
s2:
  test.fail_without_changes:
  - onfail:
    - test: s5
s3:
  test.succeed_with_changes: []
s4:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s8
    - test: s5
s5:
  test.nop:
  - onchanges_any:
    - test: s7
  - onchanges:
    - test: s1
s6:
  test.succeed_with_changes:
  - onlyif: 'true'
s7:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
    - test: s0
  - onfail:
    - test: s0
    - test: s3
s8:
  test.fail_with_changes:
  - watch:
    - test: s0
    - test: s7
