a:
  test.nop:
    - prereq:
      - test: nobody
