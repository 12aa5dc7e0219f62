extend:
  nobody:
    test:
      - require:
        - test: a
a:
  test.nop
