a:
  test.nop:
    - onchanges_in:
      - test: c
b:
  test.succeed_with_changes:
    - onchanges_in:
      - test: c
c:
  test.succeed_with_changes
