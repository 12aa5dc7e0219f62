a:
  test.nop:
    - listen:
      - test: b
b:
  test.fail_with_changes
