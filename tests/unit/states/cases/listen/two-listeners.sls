a:
  test.nop:
    - listen:
      - test: c
b:
  cmd.wait:
    - name: echo heard
    - listen:
      - test: c
c:
  test.succeed_with_changes
