a:
  test.nop:
    - order: last
b:
  test.nop:
    - order: -1
c:
  test.nop
