a:
  test.succeed_with_changes:
    - onchanges:
      - test: b
b:
  test.nop
