a:
  test.fail_without_changes:
    - listen:
      - test: b
b:
  test.succeed_with_changes
