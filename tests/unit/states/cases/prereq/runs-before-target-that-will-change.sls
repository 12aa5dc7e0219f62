target:
  test.succeed_with_changes
a:
  test.succeed_with_changes:
    - prereq:
      - test: target
