s0:
  test.succeed_with_changes:
  - listen_in:
    - test: s4
s1:
  test.succeed_with_changes:
  - onlyif: 'false'
s2:
  test.succeed_with_changes:
  - onfail:
    - test: s1
s3:
  test.nop:
  - require:
    - test: s6
s4:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
s5:
  test.nop:
  - onfail:
    - test: s2
  - require:
    - test: s2
  - onchanges_any:
    - test: s2
s6:
  test.nop: []
s7:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s1
  - prereq:
    - test: s4
  - check_cmd: 'false'
