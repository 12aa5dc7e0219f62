a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.fail_without_changes
