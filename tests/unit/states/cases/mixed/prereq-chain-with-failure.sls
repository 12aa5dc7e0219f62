a:
  test.fail_without_changes:
    - prereq:
      - test: b
b:
  test.succeed_with_changes:
    - prereq:
      - test: c
c:
  test.succeed_with_changes
