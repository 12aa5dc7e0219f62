a:
  test.nop:
    - onchanges:
      - test: still
    - onchanges_any:
      - test: moved
      - test: still
still:
  test.nop
moved:
  test.succeed_with_changes
