a:
  test.fail_without_changes:
    - retry:
        attempts: 2
        interval: 0
b:
  test.nop:
    - require:
      - test: a
