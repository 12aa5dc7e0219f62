a:
  test.nop:
    - onlyif: "false"
    - watch:
      - test: b
b:
  test.succeed_with_changes
