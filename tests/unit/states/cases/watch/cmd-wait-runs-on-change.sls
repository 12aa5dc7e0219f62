a:
  cmd.wait:
    - name: echo reacted
    - watch:
      - test: b
b:
  test.succeed_with_changes
