a:
  test.nop:
    - require:
      - id: b
b:
  test.nop: []
  cmd.run:
    - name: "false"
