a:
  test.nop:
    - order: 1
    - require:
      - test: b
b:
  test.nop:
    - order: last
c:
  test.nop
