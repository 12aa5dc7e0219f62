a:
  test.succeed_with_changes:
    - onfail:
      - test: b
      - test: c
b:
  test.nop
c:
  test.fail_without_changes
