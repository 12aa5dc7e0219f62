s0:
  test.nop: []
s1:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - onfail_all:
    - test: s8
s2:
  test.fail_without_changes:
  - watch:
    - test: s8
    - test: s1
  - listen_in:
    - test: s0
  - order: first
s3:
  test.succeed_with_changes:
  - watch_any:
    - test: s9
    - test: s8
s4:
  test.succeed_with_changes:
  - watch:
    - test: s9
  - unless: 'false'
s5:
  test.nop:
  - prereq:
    - test: s2
s6:
  test.succeed_with_changes:
  - onfail:
    - test: s5
s7:
  test.nop:
  - onfail_any:
    - test: s6
  - watch_any:
    - test: s6
  - onfail:
    - test: s1
    - test: s5
s8:
  test.nop:
  - listen_in:
    - test: s4
s9:
  test.succeed_with_changes:
  - require:
    - test: s1
  - prereq:
    - test: s7
s10:
  test.fail_without_changes:
  - watch:
    - test: s1
  - require:
    - test: s8
    - test: s2
