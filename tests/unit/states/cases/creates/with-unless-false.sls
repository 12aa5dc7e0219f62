a:
  test.succeed_with_changes:
    - creates: /etc
    - unless: "false"
