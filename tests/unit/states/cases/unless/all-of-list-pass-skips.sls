a:
  test.succeed_with_changes:
    - unless:
      - "true"
      - "true"
