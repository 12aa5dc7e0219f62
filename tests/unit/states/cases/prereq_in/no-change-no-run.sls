target:
  test.nop:
    - prereq_in:
      - test: a
a:
  test.succeed_with_changes
