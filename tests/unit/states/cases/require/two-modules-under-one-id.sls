a:
  test.nop: []
  cmd.run:
    - name: "true"
    - require:
      - test: b
b:
  test.fail_without_changes
