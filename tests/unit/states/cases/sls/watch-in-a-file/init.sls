include:
  - .part
a:
  test.succeed_with_changes:
    - watch_in:
      - sls: sls.watch-in-a-file.part
