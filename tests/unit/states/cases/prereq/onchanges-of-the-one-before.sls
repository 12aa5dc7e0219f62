a:
  test.succeed_with_changes:
    - prereq:
      - test: target
target:
  test.succeed_with_changes
z:
  test.succeed_with_changes:
    - onchanges:
      - test: a
