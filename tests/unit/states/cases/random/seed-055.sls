s0:
  test.succeed_with_changes:
  - require:
    - test: s4
s1:
  test.nop:
  - unless: 'true'
s2:
  test.succeed_with_changes:
  - prereq:
    - test: s5
s3:
  test.nop:
  - require:
    - test: s4
  - onchanges:
    - test: s4
s4:
  test.fail_without_changes: []
s5:
  test.succeed_with_changes:
  - order: first
