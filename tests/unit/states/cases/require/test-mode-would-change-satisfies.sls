# test: true
a:
  test.succeed_with_changes:
    - require:
      - test: b
b:
  test.succeed_with_changes
