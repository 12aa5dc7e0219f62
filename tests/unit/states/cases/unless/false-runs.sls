a:
  test.succeed_with_changes:
    - unless: "false"
