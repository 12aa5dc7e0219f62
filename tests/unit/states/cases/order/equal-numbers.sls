zeta:
  test.nop:
    - order: 5
alpha:
  test.nop:
    - order: 5
mid:
  test.nop:
    - order: 5
