many:
  test.nop:
    - names:
      - n1
      - n2
a:
  test.fail_without_changes:
    - require_in:
      - test: many
