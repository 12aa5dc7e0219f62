a:
  test.nop:
    - prereq:
      - test: target
z:
  test.nop:
    - require:
      - test: target
target:
  test.succeed_with_changes
