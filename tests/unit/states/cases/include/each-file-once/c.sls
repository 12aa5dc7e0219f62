y:
  test.nop
