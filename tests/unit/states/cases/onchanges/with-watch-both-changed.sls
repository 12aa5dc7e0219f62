a:
  test.nop:
    - onchanges:
      - test: moved
    - watch:
      - test: moved
moved:
  test.succeed_with_changes
