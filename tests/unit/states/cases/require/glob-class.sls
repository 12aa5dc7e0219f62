last:
  test.nop:
    - require:
      - test: "n[12]"
n3:
  test.nop
n1:
  test.nop
n2:
  test.nop
