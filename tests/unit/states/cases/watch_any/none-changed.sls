a:
  test.nop:
    - watch_any:
      - test: b
      - test: c
b:
  test.nop
c:
  test.nop
