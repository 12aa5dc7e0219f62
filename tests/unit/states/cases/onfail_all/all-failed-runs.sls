a:
  test.succeed_with_changes:
    - onfail_all:
      - test: b
      - test: c
b:
  test.fail_without_changes
c:
  test.fail_with_changes
