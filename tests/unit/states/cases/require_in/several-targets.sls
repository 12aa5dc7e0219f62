late:
  test.nop:
    - require_in:
      - test: b
      - test: c
b:
  test.nop
c:
  test.nop
