bottom:
  test.nop:
    - require:
      - test: left
      - test: right
left:
  test.nop:
    - require:
      - test: top
right:
  test.nop:
    - require:
      - test: top
top:
  test.succeed_with_changes
