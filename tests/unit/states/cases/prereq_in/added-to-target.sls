target:
  test.succeed_with_changes:
    - prereq_in:
      - test: a
a:
  test.succeed_with_changes
