a:
  test.succeed_with_changes:
    - prereq:
      - test: target
b:
  test.nop:
    - prereq:
      - test: target
target:
  test.succeed_with_changes
