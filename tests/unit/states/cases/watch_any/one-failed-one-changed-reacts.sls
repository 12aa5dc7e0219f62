a:
  test.nop:
    - watch_any:
      - test: b
      - test: c
b:
  test.fail_without_changes
c:
  test.succeed_with_changes
