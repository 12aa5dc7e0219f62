a:
  test.succeed_with_changes:
    - watch_in:
      - test: b
b:
  test.nop
