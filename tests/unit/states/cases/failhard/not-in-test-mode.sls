# test: true
a:
  test.fail_without_changes:
    - failhard: True
b:
  test.nop
