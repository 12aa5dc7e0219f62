z:
  test.nop:
    - order: last
b:
  test.nop
a:
  test.nop:
    - order: last
