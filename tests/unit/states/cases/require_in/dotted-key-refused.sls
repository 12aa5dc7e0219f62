a:
  test.nop:
    - require_in:
      - test.nop: b
b:
  test.nop
