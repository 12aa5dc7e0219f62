x:
  test.nop
a:
  test.nop:
    - require:
      - test: z
y:
  test.nop
z:
  test.nop
