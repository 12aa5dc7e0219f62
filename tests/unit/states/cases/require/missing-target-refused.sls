a:
  test.nop:
    - require:
      - test: nobody
