a:
  test.nop:
    - onfail_any:
      - test: b
      - test: nobody
b:
  test.nop
