a:
  test.nop:
    - onfail:
      - test: nobody
