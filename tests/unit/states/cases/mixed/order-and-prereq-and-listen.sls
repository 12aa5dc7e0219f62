a:
  test.nop:
    - order: last
    - listen:
      - test: c
b:
  test.succeed_with_changes:
    - prereq:
      - test: c
c:
  test.succeed_with_changes:
    - order: first
