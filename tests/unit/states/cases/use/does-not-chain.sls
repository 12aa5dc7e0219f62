one:
  test.configurable_test_state:
    - comment: one
two:
  test.configurable_test_state:
    - changes: False
    - use:
      - test: one
three:
  test.configurable_test_state:
    - use:
      - test: two
