source:
  test.succeed_with_changes:
    - unless: "true"
a:
  test.succeed_with_changes:
    - use:
      - test: source
