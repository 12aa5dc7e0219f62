a:
  test.fail_without_changes
b:
  test.nop:
    - require:
      - test: a
c:
  test.nop:
    - require:
      - test: b
d:
  test.nop:
    - require:
      - test: c
