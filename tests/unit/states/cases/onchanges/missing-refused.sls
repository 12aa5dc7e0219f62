a:
  test.nop:
    - onchanges:
      - test: nobody
