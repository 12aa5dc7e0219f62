a:
  test.nop:
    - require_any:
      - test: bad
      - test: worse
bad:
  test.fail_without_changes
worse:
  test.fail_with_changes
