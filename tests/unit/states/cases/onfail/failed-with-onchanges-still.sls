a:
  test.succeed_with_changes:
    - onfail:
      - test: b
    - onchanges:
      - test: c
b:
  test.fail_without_changes
c:
  test.nop
