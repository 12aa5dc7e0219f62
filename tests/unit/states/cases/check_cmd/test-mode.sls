# test: true
a:
  test.succeed_with_changes:
    - check_cmd: "true"
