source:
  test.configurable_test_state:
    - comment: given
    - use_in:
      - test: a
a:
  test.configurable_test_state:
    - comment: own
