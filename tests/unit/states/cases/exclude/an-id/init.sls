include:
  - .b
exclude:
  - id: x
a:
  test.nop
