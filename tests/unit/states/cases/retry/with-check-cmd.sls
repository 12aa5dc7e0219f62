a:
  test.nop:
    - retry:
        attempts: 2
        interval: 0
    - check_cmd: "false"
