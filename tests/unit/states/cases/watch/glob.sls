a:
  test.nop:
    - watch:
      - test: conf-*
conf-1:
  test.nop
conf-2:
  test.succeed_with_changes
