a:
  test.nop:
    - require_any:
      - test: bad
      - test: skipped
bad:
  test.fail_without_changes
skipped:
  test.nop:
    - unless: "true"
