good:
  test.nop
moved:
  test.succeed_with_changes
bad:
  test.fail_without_changes
a:
  test.nop:
    - require:
      - test: good
    - require_any:
      - test: bad
      - test: moved
    - onchanges:
      - test: moved
    - onfail:
      - test: bad
    - watch:
      - test: moved
