a:
  test.nop:
    - check_cmd: "true"
