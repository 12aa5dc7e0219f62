include:
  - .b
  - .c
exclude:
  - sls: exclude.an-sls.b
a:
  test.nop
