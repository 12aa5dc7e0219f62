a:
  test.nop
b:
  test.succeed_with_changes:
    - listen_in:
      - test: a
c:
  test.succeed_with_changes:
    - listen_in:
      - test: a
