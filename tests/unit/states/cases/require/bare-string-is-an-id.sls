a:
  test.nop:
    - require:
      - b
b:
  test.succeed_with_changes
