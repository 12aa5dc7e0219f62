include:
  - .inner
m:
  test.nop
