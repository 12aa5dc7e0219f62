a:
  test.fail_without_changes:
    - prereq:
      - test: target
b:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.succeed_with_changes
