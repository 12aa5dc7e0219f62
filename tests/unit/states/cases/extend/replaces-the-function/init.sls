include:
  - .b
extend:
  x:
    test.succeed_with_changes: []
