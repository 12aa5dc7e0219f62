a:
  test.nop
b:
  test.nop
c:
  test.nop:
    - require:
      - test: b
d:
  test.nop:
    - order: 1
    - require:
      - test: c
