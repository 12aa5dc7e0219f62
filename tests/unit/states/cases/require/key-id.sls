a:
  test.nop:
    - require:
      - id: b
b:
  test.fail_without_changes
