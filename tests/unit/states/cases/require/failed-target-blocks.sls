a:
  test.nop:
    - require:
      - test: b
b:
  test.fail_without_changes
