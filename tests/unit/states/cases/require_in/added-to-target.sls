a:
  test.fail_without_changes:
    - require_in:
      - test: b
b:
  test.nop
