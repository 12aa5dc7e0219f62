s0:
  test.succeed_with_changes:
  - onfail:
    - test: s5
    - test: s2
  - watch_any:
    - test: s7
s1:
  test.nop:
  - require:
    - test: s3
    - test: s2
s2:
  test.succeed_with_changes: []
s3:
  test.nop:
  - watch:
    - test: s2
  - require:
    - test: s2
s4:
  test.succeed_with_changes:
  - watch:
    - test: s7
s5:
  test.succeed_with_changes:
  - watch:
    - test: s3
    - test: s2
  - require:
    - test: s3
    - test: s2
  - onchanges:
    - test: s3
    - test: s2
s6:
  test.nop:
  - onchanges:
    - test: s7
s7:
  test.fail_without_changes:
  - require:
    - test: s5
  - require_any:
    - test: s3
s8:
  test.fail_without_changes:
  - require:
    - test: s5
s9:
  test.succeed_with_changes: []
