s0:
  test.nop:
  - require:
    - test: s4
  - prereq:
    - test: s2
s1:
  test.succeed_with_changes:
  - watch:
    - test: s0
  - unless: 'true'
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - listen:
    - test: s2
    - test: s0
s4:
  test.nop:
  - prereq:
    - test: s3
  - order: last
s5:
  test.succeed_with_changes:
  - onchanges_in:
    - test: s1
  - order: first
  - check_cmd: 'true'
