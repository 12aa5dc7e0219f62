target:
  test.succeed_with_changes:
    - order: 1
a:
  test.nop
b:
  test.nop:
    - order: last
    - prereq:
      - test: target
