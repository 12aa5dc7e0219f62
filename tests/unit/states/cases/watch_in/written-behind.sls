b:
  cmd.wait:
    - name: echo hi
a:
  test.succeed_with_changes:
    - watch_in:
      - cmd: b
