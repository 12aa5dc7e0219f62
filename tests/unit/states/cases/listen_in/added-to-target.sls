b:
  test.succeed_with_changes:
    - listen_in:
      - test: a
a:
  test.nop
