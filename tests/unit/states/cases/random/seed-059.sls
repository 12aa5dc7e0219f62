s0:
  test.nop: []
s1:
  test.nop:
  - watch:
    - test: s0
    - test: s7
  - onfail:
    - test: s0
    - test: s3
  - unless: 'true'
s2:
  test.succeed_with_changes:
  - unless: 'false'
s3:
  test.succeed_with_changes:
  - onfail:
    - test: s6
    - test: s4
  - prereq:
    - test: s1
s4:
  test.fail_without_changes:
  - onchanges:
    - test: s2
  - listen:
    - test: s3
s5:
  test.nop:
  - onfail_all:
    - test: s3
  - require:
    - test: s7
  - order: 3
s6:
  test.nop:
  - require:
    - test: s4
  - watch:
    - test: s4
s7:
  test.nop:
  - onfail_any:
    - test: s6
    - test: s2
