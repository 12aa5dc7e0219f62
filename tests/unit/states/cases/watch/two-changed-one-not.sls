a:
  test.nop:
    - watch:
      - test: b
      - test: c
      - test: d
b:
  test.succeed_with_changes
c:
  test.nop
d:
  test.succeed_with_changes
