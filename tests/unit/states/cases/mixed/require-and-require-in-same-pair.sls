a:
  test.nop:
    - require_in:
      - test: b
b:
  test.nop:
    - require:
      - test: a
