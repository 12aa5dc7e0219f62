a:
  test.fail_without_changes
b:
  test.fail_without_changes:
    - onfail:
      - test: a
c:
  test.succeed_with_changes:
    - onfail:
      - test: b
