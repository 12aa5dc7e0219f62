a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.succeed_with_changes:
    - check_cmd: "true"
