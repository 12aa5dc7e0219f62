a:
  test.succeed_with_changes:
    - onlyif: "false"
b:
  test.nop:
    - onchanges:
      - test: a
