a:
  test.nop
b:
  test.nop
w:
  test.nop:
    - order: 9
    - watch:
      - test: b
r:
  test.nop:
    - order: 1
    - require:
      - test: b
