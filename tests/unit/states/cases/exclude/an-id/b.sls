x:
  test.nop
y:
  test.nop
