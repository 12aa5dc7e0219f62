include:
  - .b
extend:
  x:
    test:
      - watch:
        - test: a
a:
  test.succeed_with_changes
