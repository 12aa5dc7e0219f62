a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.nop:
    - watch:
      - test: moved
moved:
  test.succeed_with_changes
