include:
  - .b
exclude:
  - id: x
a:
  test.nop:
    - require:
      - test: x
