a:
  test.succeed_with_changes:
    - prereq:
      - test: t1
      - test: t2
t1:
  test.nop
t2:
  test.nop
