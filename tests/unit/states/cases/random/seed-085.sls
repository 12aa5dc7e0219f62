s0:
  test.fail_without_changes:
  - listen_in:
    - test: s2
s1:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
  - unless: 'true'
s2:
  test.succeed_with_changes:
  - watch:
    - test: s6
  - require:
    - test: s0
s3:
  test.fail_without_changes:
  - onchanges:
    - test: s12
s4:
  test.nop: []
s5:
  test.fail_without_changes:
  - onfail:
    - test: s3
  - prereq:
    - test: s11
s6:
  test.fail_without_changes:
  - onfail_all:
    - test: s0
s7:
  test.succeed_with_changes:
  - onchanges:
    - test: s13
    - test: s8
s8:
  test.nop:
  - watch:
    - test: s6
    - test: s2
  - onchanges:
    - test: s0
s9:
  test.nop:
  - order: last
s10:
  test.nop:
  - onfail_in:
    - test: s5
s11:
  test.nop: []
s12:
  test.nop:
  - watch:
    - test: s6
    - test: s0
s13:
  test.succeed_with_changes:
  - watch:
    - test: s0
    - test: s6
  - watch_in:
    - test: s3
s14:
  test.succeed_with_changes:
  - require:
    - test: s6
  - order: first
