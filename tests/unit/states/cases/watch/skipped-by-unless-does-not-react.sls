a:
  test.nop:
    - unless: "true"
    - watch:
      - test: b
b:
  test.succeed_with_changes
