a:
  test.nop:
    - require_any:
      - test: g*
g1:
  test.fail_without_changes
g2:
  test.nop
