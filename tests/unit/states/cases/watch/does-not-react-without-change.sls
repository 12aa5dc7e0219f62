a:
  test.nop:
    - watch:
      - test: b
b:
  test.nop
