a:
  cmd.run:
    - name: echo $X
    - env:
      - X: seen
    - unless: test "$X" = other
