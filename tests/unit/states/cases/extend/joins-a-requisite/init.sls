include:
  - .b
extend:
  x:
    test:
      - require:
        - test: a
a:
  test.fail_without_changes
