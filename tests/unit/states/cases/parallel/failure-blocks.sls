a:
  cmd.run:
    - name: exit 1
    - parallel: True
b:
  test.nop:
    - require:
      - cmd: a
