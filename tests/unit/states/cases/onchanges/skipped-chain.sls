a:
  test.nop
b:
  test.succeed_with_changes:
    - onchanges:
      - test: a
c:
  test.succeed_with_changes:
    - onchanges:
      - test: b
