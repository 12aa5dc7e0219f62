include:
  - include.nobody
a:
  test.nop
