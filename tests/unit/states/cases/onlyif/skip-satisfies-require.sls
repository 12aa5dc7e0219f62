a:
  test.fail_without_changes:
    - onlyif: "false"
b:
  test.nop:
    - require:
      - test: a
