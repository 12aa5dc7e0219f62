a:
  test.nop:
    - onfail_in:
      - test: nobody
