a:
  test.succeed_with_changes:
    - onfail:
      - test: b
b:
  test.fail_without_changes
