a:
  test.nop:
    - require:
      - test: 5
b:
  test.nop
