b:
  test.nop:
    - watch:
      - test: x
x:
  test.nop
a:
  test.succeed_with_changes:
    - watch_in:
      - test: b
