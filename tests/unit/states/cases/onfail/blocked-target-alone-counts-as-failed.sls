a:
  test.fail_without_changes
b:
  test.nop:
    - require:
      - test: a
c:
  test.succeed_with_changes:
    - onfail:
      - test: b
