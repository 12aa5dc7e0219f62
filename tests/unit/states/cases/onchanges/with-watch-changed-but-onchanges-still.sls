a:
  test.nop:
    - onchanges:
      - test: still
    - watch:
      - test: moved
still:
  test.nop
moved:
  test.succeed_with_changes
