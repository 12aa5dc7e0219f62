a:
  test.nop:
    - require_any:
      - test: b
      - test: c
b:
  test.nop
c:
  test.succeed_with_changes
