a:
  test.nop
b:
  test.nop
z:
  test.nop:
    - order: 1
    - require:
      - test: b
