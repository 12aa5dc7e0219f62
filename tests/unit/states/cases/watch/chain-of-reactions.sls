a:
  test.succeed_with_changes
b:
  test.nop:
    - watch:
      - test: a
c:
  test.nop:
    - watch:
      - test: b
