source:
  test.configurable_test_state:
    - changes: False
    - comment: from the source
a:
  test.configurable_test_state:
    - comment: my own
    - use:
      - test: source
