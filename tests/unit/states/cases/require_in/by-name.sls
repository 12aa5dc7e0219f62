b:
  test.nop:
    - name: the-b
a:
  test.fail_without_changes:
    - require_in:
      - test: the-b
