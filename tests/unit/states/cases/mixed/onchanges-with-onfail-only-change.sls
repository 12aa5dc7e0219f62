good:
  test.nop
moved:
  test.succeed_with_changes
a:
  test.nop:
    - watch:
      - test: moved
    - onfail:
      - test: good
