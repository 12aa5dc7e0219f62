many:
  test.nop:
    - order: 3
    - names:
      - z
      - a
      - m
b:
  test.nop:
    - order: 3
c:
  test.nop:
    - order: 2
