a:
  test.succeed_with_changes
b:
  test.fail_without_changes:
    - failhard: True
c:
  test.nop:
    - listen:
      - test: a
