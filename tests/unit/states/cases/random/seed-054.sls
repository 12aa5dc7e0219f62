s0:
  test.fail_with_changes: []
s1:
  test.nop:
  - require:
    - test: s5
s2:
  test.succeed_with_changes: []
s3:
  test.fail_with_changes:
  - unless: 'true'
s4:
  test.fail_without_changes:
  - require_any:
    - test: s0
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes:
  - listen:
    - test: s3
  - onchanges_any:
    - test: s0
  - order: first
