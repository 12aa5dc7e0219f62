b:
  test.nop:
    - require:
      - test: x
x:
  test.nop
a:
  test.fail_without_changes:
    - require_in:
      - test: b
