x:
  test.configurable_test_state:
    - comment: original
    - changes: False
