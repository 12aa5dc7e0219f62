a:
  test.nop:
    - require_in:
      - test: nobody
