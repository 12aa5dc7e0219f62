s0:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s6
s1:
  test.nop:
  - onchanges:
    - test: s2
s2:
  test.nop: []
s3:
  test.nop:
  - listen:
    - test: s1
  - require:
    - test: s11
    - test: s8
s4:
  test.nop:
  - watch:
    - test: s2
    - test: s10
  - prereq:
    - test: s9
s5:
  test.succeed_with_changes:
  - watch_in:
    - test: s3
s6:
  test.nop:
  - listen:
    - test: s7
  - onchanges:
    - test: s0
  - onfail_any:
    - test: s10
    - test: s0
  - prereq:
    - test: s3
s7:
  test.fail_without_changes:
  - onchanges:
    - test: s2
    - test: s9
s8:
  test.nop: []
s9:
  test.succeed_with_changes:
  - watch_in:
    - test: s5
s10:
  test.fail_without_changes:
  - check_cmd: 'false'
s11:
  test.nop: []
