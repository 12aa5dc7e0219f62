a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.fail_with_changes
