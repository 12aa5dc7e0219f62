a:
  test.succeed_with_changes:
    - onchanges_any:
      - test: b
      - test: c
b:
  test.fail_with_changes
c:
  test.fail_without_changes
