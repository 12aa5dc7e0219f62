a:
  test.succeed_with_changes:
    - prereq:
      - test: target
    - require:
      - test: bad
target:
  test.succeed_with_changes
bad:
  test.fail_without_changes
