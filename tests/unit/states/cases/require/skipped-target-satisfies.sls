a:
  test.nop:
    - require:
      - test: b
b:
  test.succeed_with_changes:
    - onchanges:
      - test: c
c:
  test.nop
