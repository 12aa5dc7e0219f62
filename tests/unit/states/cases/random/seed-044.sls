s0:
  test.fail_with_changes:
  - listen_in:
    - test: s9
s1:
  test.succeed_with_changes:
  - onfail:
    - test: s6
  - onchanges:
    - test: s3
    - test: s0
s2:
  test.nop:
  - prereq:
    - test: s8
s3:
  test.succeed_with_changes:
  - onfail_in:
    - test: s1
s4:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s5
  - onchanges:
    - test: s5
  - onfail:
    - test: s5
  - prereq:
    - test: s0
s5:
  test.fail_with_changes: []
s6:
  test.fail_without_changes: []
s7:
  test.nop:
  - check_cmd: 'false'
s8:
  test.succeed_with_changes:
  - require:
    - test: s7
s9:
  test.nop:
  - listen:
    - test: s1
  - onchanges:
    - test: s5
s10:
  test.nop:
  - watch:
    - test: s7
