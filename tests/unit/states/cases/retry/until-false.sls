a:
  test.nop:
    - retry:
        attempts: 2
        interval: 0
        until: False
