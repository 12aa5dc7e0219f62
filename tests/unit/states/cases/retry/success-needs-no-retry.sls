a:
  test.succeed_with_changes:
    - retry:
        attempts: 3
        interval: 0
