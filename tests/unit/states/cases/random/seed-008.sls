s0:
  test.succeed_with_changes:
  - onfail_all:
    - test: s4
s1:
  test.succeed_with_changes: []
s2:
  test.nop:
  - prereq:
    - test: s0
s3:
  test.fail_without_changes:
  - onchanges:
    - test: s0
    - test: s4
  - onfail_all:
    - test: s6
  - unless: 'true'
s4:
  test.nop: []
s5:
  test.succeed_with_changes:
  - require:
    - test: s6
    - test: s2
s6:
  test.nop:
  - onchanges:
    - test: s4
  - order: -2
s7:
  test.nop:
  - onchanges:
    - test: s4
  - onfail:
    - test: s4
  - onchanges_in:
    - test: s3
