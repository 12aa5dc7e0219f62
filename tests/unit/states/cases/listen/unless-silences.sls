a:
  cmd.wait:
    - name: echo heard
    - unless: "true"
    - listen:
      - test: b
b:
  test.succeed_with_changes
