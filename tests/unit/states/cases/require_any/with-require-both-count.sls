a:
  test.nop:
    - require:
      - test: bad
    - require_any:
      - test: bad2
      - test: good
bad:
  test.fail_without_changes
bad2:
  test.fail_without_changes
good:
  test.nop
