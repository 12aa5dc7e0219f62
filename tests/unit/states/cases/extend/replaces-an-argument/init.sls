include:
  - .b
extend:
  x:
    test.configurable_test_state:
      - comment: replaced
