x:
  test.nop
y:
  test.fail_without_changes
