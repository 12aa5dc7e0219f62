a:
  test.nop:
    - watch_in:
      - cmd: nobody
