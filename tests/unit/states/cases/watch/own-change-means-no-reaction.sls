a:
  test.succeed_with_changes:
    - watch:
      - test: b
b:
  test.succeed_with_changes
