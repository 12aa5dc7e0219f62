a:
  test.fail_with_changes:
    - watch_in:
      - test: b
b:
  test.nop
