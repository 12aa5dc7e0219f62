b:
  test.nop: []
  cmd.run:
    - name: "true"
    - order: 1
a:
  test.nop
