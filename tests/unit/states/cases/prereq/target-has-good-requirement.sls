a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.succeed_with_changes:
    - require:
      - test: good
good:
  test.succeed_with_changes
