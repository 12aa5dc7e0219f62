a:
  test.nop:
    - require:
      - test: "/srv/?.conf"
one:
  test.nop:
    - name: /srv/a.conf
two:
  test.nop:
    - name: /srv/b.conf
