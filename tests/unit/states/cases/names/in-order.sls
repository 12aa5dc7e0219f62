many:
  test.nop:
    - names:
      - c
      - a
      - b
after:
  test.nop
