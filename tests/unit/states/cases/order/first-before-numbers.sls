a:
  test.nop:
    - order: 1
b:
  test.nop:
    - order: first
