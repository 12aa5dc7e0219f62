include:
  - .part
a:
  test.nop:
    - onchanges:
      - sls: sls.onchanges-of-a-file.part
