a:
  test.nop:
    - require:
      - test: c
      - test: b
b:
  test.nop
c:
  test.nop
