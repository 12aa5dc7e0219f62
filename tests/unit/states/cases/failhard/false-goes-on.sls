a:
  test.fail_without_changes:
    - failhard: False
b:
  test.nop
