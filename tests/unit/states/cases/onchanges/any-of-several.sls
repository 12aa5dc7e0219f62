a:
  test.nop:
    - onchanges:
      - test: b
      - test: c
b:
  test.nop
c:
  test.succeed_with_changes
