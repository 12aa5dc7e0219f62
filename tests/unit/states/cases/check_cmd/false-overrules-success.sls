a:
  test.succeed_with_changes:
    - check_cmd:
      - "false"
b:
  test.nop:
    - require:
      - test: a
