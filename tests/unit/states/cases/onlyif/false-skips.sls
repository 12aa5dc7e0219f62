a:
  test.fail_without_changes:
    - onlyif: "false"
