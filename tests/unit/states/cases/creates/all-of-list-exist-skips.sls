a:
  cmd.run:
    - name: echo never
    - creates:
      - /
      - /etc
