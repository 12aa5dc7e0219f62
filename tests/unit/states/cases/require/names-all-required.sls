a:
  test.nop:
    - require:
      - test: many
many:
  test.nop:
    - names:
      - n1
      - n2
      - n3
