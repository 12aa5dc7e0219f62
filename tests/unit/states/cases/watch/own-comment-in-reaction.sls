a:
  test.succeed_without_changes:
    - comment: my own words
    - watch:
      - test: b
b:
  test.succeed_with_changes
