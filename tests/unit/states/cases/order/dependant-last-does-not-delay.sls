a:
  test.nop
b:
  test.nop
c:
  test.nop:
    - order: last
    - require:
      - test: b
