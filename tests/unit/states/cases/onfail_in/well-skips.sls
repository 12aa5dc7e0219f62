a:
  test.nop:
    - onfail_in:
      - test: b
b:
  test.succeed_with_changes
