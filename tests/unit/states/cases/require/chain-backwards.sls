s1:
  test.nop:
    - require:
      - test: s2
s2:
  test.nop:
    - require:
      - test: s3
s3:
  test.nop:
    - require:
      - test: s4
s4:
  test.nop
