a:
  cmd.run:
    - name: echo made
    - creates: /nonexistent/rackwright
