a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.succeed_with_changes:
    - require:
      - test: bad
bad:
  test.fail_without_changes
