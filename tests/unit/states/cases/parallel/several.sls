a:
  cmd.run:
    - name: echo a
    - parallel: True
b:
  cmd.run:
    - name: echo b
    - parallel: True
c:
  test.nop:
    - require:
      - cmd: a
      - cmd: b
