a:
  test.nop:
    - failhard: True
b:
  test.nop
