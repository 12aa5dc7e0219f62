target:
  test.nop
a:
  test.succeed_with_changes:
    - prereq:
      - test: target
