conf:
  test.succeed_with_changes
soft:
  test.nop:
    - listen:
      - test: conf
hard:
  test.nop:
    - watch:
      - test: conf
end:
  test.nop:
    - require:
      - test: hard
