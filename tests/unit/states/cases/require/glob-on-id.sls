a:
  test.nop:
    - require:
      - test: web-*
web-1:
  test.nop
web-2:
  test.fail_without_changes
db-1:
  test.nop
