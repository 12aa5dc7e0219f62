a:
  test.nop:
    - onchanges:
      - test: x*
x1:
  test.nop
x2:
  test.succeed_with_changes
