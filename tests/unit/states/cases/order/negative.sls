a:
  test.nop:
    - order: -1
b:
  test.nop
c:
  test.nop:
    - order: -2
d:
  test.nop
