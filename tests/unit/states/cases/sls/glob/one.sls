x:
  test.fail_without_changes
