a:
  test.succeed_with_changes:
    - parallel: True
b:
  test.succeed_with_changes:
    - onchanges:
      - test: a
