a:
  test.nop:
    - require: b
b:
  test.nop
