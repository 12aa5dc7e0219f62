a:
  test.nop:
    - require:
      - test: bad
    - require:
      - test: good
bad:
  test.fail_without_changes
good:
  test.nop
