include:
  - .other
a:
  test.nop:
    - require:
      - sls: sls.requires-all-of-a-file.other
