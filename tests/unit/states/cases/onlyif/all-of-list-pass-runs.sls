a:
  test.succeed_with_changes:
    - onlyif:
      - "true"
      - "true"
