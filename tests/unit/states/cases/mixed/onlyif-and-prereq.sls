a:
  test.succeed_with_changes:
    - onlyif: "false"
    - prereq:
      - test: b
b:
  test.succeed_with_changes
