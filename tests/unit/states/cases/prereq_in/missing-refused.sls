a:
  test.nop:
    - prereq_in:
      - test: nobody
