a:
  cmd.wait:
    - name: exit 4
    - watch:
      - test: b
b:
  test.succeed_with_changes
c:
  test.nop:
    - require:
      - cmd: a
