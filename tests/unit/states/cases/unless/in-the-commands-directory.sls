a:
  cmd.run:
    - name: pwd
    - cwd: /
    - unless: test "$(pwd)" = /
