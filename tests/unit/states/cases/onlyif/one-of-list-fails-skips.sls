a:
  test.succeed_with_changes:
    - onlyif:
      - "true"
      - exit 3
      - "true"
