a:
  test.nop:
    - require:
      - test: n2
many:
  test.nop:
    - names:
      - n1
      - n2
      - n3
