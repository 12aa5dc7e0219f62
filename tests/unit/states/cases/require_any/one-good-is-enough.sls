a:
  test.succeed_with_changes:
    - require_any:
      - test: bad
      - test: good
bad:
  test.fail_without_changes
good:
  test.nop
