s0:
  test.succeed_with_changes:
  - watch_any:
    - test: s2
  - watch:
    - test: s2
    - test: s3
  - watch_in:
    - test: s1
  - prereq:
    - test: s4
s1:
  test.succeed_with_changes:
  - onchanges:
    - test: s4
    - test: s0
s2:
  test.succeed_with_changes:
  - require:
    - test: s3
  - order: 2
s3:
  test.nop: []
s4:
  test.succeed_with_changes:
  - watch:
    - test: s3
  - listen_in:
    - test: s5
  - onlyif: 'false'
s5:
  test.succeed_with_changes: []
