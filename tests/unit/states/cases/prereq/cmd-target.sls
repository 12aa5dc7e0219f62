stop:
  cmd.run:
    - name: echo stopping
    - prereq:
      - cmd: upgrade
upgrade:
  cmd.run:
    - name: echo upgrading
