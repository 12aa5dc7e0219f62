a:
  test.nop:
    - require:
      - file: b
b:
  test.nop
