a:
  test.nop:
    - onfail_in:
      - test: c
b:
  test.fail_without_changes:
    - onfail_in:
      - test: c
c:
  test.succeed_with_changes
