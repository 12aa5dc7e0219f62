a:
  test.nop:
    - order: last
b:
  test.nop
c:
  test.nop
