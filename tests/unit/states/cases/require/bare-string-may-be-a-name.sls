a:
  test.nop:
    - require:
      - other
b:
  test.nop:
    - name: other
