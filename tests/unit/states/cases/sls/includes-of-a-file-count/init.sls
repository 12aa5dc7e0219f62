include:
  - .middle
a:
  test.nop:
    - require:
      - sls: sls.includes-of-a-file-count.middle
