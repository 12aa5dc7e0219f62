a:
  cmd.run:
    - name: exit 5
    - check_cmd:
      - "true"
