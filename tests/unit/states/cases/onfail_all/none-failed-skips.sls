a:
  test.succeed_with_changes:
    - onfail_all:
      - test: b
      - test: c
b:
  test.nop
c:
  test.nop
