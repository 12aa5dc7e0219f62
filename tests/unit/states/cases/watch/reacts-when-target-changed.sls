a:
  test.nop:
    - watch:
      - test: b
b:
  test.succeed_with_changes
