a:
  test.succeed_with_changes:
    - onfail:
      - test: b
      - test: c
b:
  test.nop
c:
  test.succeed_with_changes
