a:
  test.nop
b:
  test.nop
c:
  test.nop:
    - order: -1
    - require:
      - test: b
