a:
  test.nop:
    - require:
      - test: zzz*
