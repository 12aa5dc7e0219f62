a:
  test.fail_without_changes:
    - retry: False
