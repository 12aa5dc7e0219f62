a:
  test.nop:
    - require_any:
      - test: b
      - test: nobody
b:
  test.nop
