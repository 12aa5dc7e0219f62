a:
  test.nop:
    - listen:
      - test: b
b:
  test.succeed_with_changes
c:
  test.nop
