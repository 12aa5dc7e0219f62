a:
  test.nop:
    - onchanges:
      - test: b
    - require:
      - test: c
b:
  test.succeed_with_changes
c:
  test.fail_without_changes
