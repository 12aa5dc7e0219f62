include:
  - .c
x:
  test.nop
