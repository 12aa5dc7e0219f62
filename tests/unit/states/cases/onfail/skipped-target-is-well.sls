a:
  test.succeed_with_changes:
    - onfail:
      - test: b
b:
  test.nop:
    - onchanges:
      - test: still
still:
  test.nop
