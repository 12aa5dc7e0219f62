a:
  test.fail_without_changes
b:
  test.nop:
    - failhard: True
    - require:
      - test: a
c:
  test.nop
