include:
  - .one
  - .two
a:
  test.nop:
    - require:
      - sls: sls.glob.t*
