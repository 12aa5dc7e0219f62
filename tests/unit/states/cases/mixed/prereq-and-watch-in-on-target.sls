stop:
  test.succeed_with_changes:
    - prereq:
      - test: upgrade
config:
  test.succeed_with_changes:
    - watch_in:
      - test: upgrade
upgrade:
  test.succeed_with_changes
