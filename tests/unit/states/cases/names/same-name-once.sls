many:
  test.nop:
    - names:
      - a
      - a
