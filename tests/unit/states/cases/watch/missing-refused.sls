a:
  test.nop:
    - watch:
      - test: nobody
