target:
  test.succeed_with_changes:
    - prereq_in:
      - test: a
a:
  test.fail_without_changes
