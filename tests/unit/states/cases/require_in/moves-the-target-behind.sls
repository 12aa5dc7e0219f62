b:
  test.nop
a:
  test.nop:
    - require_in:
      - test: b
