a:
  test.succeed_with_changes:
    - prereq:
      - test: target
    - require:
      - test: target
target:
  test.succeed_with_changes
