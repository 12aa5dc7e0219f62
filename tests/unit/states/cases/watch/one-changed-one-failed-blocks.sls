a:
  test.nop:
    - watch:
      - test: b
      - test: c
b:
  test.succeed_with_changes
c:
  test.fail_without_changes
