a:
  test.nop:
    - onchanges_in:
      - test: b
b:
  test.succeed_with_changes
