a:
  test.nop:
    - require:
      - test: real-name
b:
  test.succeed_with_changes:
    - name: real-name
