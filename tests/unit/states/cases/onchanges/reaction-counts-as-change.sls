a:
  test.succeed_with_changes
b:
  test.nop:
    - watch:
      - test: a
c:
  test.succeed_with_changes:
    - onchanges:
      - test: b
