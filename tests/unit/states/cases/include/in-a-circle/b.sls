include:
  - include.in-a-circle
x:
  test.nop
