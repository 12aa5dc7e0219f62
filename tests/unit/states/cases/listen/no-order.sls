a:
  test.nop:
    - listen:
      - test: c
b:
  test.nop
c:
  test.succeed_with_changes
