source:
  test.configurable_test_state:
    - changes: False
    - require:
      - test: z
a:
  test.configurable_test_state:
    - use:
      - test: source
z:
  test.fail_without_changes
