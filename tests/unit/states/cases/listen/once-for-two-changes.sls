a:
  test.nop:
    - listen:
      - test: b
      - test: c
b:
  test.succeed_with_changes
c:
  test.succeed_with_changes
