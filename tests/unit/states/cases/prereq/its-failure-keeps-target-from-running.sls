target:
  test.succeed_with_changes
a:
  test.fail_without_changes:
    - prereq:
      - test: target
after:
  test.nop:
    - require:
      - test: target
