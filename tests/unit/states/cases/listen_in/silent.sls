a:
  test.nop
b:
  test.nop:
    - listen_in:
      - test: a
