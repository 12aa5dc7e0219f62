a:
  test.nop:
    - require_any:
      - test: bad
      - test: kept
bad:
  test.fail_without_changes
kept:
  test.nop:
    - onchanges:
      - test: still
still:
  test.nop
