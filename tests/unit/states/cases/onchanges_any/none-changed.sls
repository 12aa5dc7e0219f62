a:
  test.succeed_with_changes:
    - onchanges_any:
      - test: b
      - test: c
b:
  test.nop
c:
  test.nop
