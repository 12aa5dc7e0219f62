a:
  test.nop:
    - unless: "true"
    - check_cmd: "false"
