many:
  test.nop:
    - names:
      - a
      - b
    - require:
      - test: bad
bad:
  test.fail_without_changes
