i:
  test.fail_without_changes
