a:
  test.nop:
    - names:
      - n1
      - n2
    - listen:
      - test: b
b:
  test.succeed_with_changes
