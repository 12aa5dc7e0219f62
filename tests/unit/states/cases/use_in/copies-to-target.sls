source:
  test.configurable_test_state:
    - changes: False
    - comment: given
    - use_in:
      - test: a
a:
  test.configurable_test_state: []
