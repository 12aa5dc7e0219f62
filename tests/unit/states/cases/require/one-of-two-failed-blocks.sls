a:
  test.nop:
    - require:
      - test: good
      - test: bad
good:
  test.nop
bad:
  test.fail_with_changes
