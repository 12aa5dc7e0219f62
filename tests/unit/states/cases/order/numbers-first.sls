a:
  test.nop
b:
  test.nop:
    - order: 2
c:
  test.nop:
    - order: 1
