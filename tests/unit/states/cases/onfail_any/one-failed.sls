a:
  test.succeed_with_changes:
    - onfail_any:
      - test: b
      - test: c
b:
  test.nop
c:
  test.fail_with_changes
