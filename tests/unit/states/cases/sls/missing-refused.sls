a:
  test.nop:
    - require:
      - sls: nobody
