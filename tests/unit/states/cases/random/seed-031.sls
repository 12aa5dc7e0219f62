s0:
  test.fail_with_changes:
  - require_in:
    - test: s3
  - order: -1
  - unless: 'true'
s1:
  test.succeed_with_changes:
  - onfail_all:
    - test: s2
  - require:
    - test: s2
  - require_any:
    - test: s2
s2:
  test.succeed_with_changes: []
s3:
  test.nop:
  - order: 3
s4:
  test.fail_without_changes:
  - watch_any:
    - test: s2
  - watch_in:
    - test: s1
  - prereq:
    - test: s1
