a:
  test.succeed_with_changes:
    - onfail:
      - test: b
    - require:
      - test: c
b:
  test.fail_without_changes
c:
  test.fail_without_changes
