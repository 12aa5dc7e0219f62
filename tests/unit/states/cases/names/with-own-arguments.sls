many:
  test.configurable_test_state:
    - changes: False
    - names:
      - c:
        - comment: mine
      - a
