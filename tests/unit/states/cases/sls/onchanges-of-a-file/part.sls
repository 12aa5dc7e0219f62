x:
  test.nop
y:
  test.succeed_with_changes
