a:
  test.nop:
    - onchanges:
      - test: b
    - require:
      - test: c
b:
  test.nop
c:
  test.fail_without_changes
