s0:
  test.nop: []
s1:
  test.fail_without_changes:
  - prereq:
    - test: s2
s2:
  test.fail_with_changes:
  - require:
    - test: s7
  - unless: 'true'
s3:
  test.succeed_with_changes:
  - onfail_in:
    - test: s1
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes:
  - order: 2
s6:
  test.nop: []
s7:
  test.succeed_with_changes:
  - watch_any:
    - test: s0
    - test: s3
  - listen:
    - test: s1
