a:
  test.nop:
    - onchanges_in:
      - test: nobody
