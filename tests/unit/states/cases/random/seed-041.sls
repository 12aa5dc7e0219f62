s0:
  test.fail_without_changes:
  - require:
    - test: s9
s1:
  test.succeed_with_changes:
  - listen_in:
    - test: s2
s2:
  test.succeed_with_changes:
  - watch:
    - test: s0
    - test: s10
  - require:
    - test: s4
    - test: s8
  - prereq:
    - test: s3
s3:
  test.succeed_with_changes:
  - require:
    - test: s1
    - test: s8
  - onfail_in:
    - test: s5
  - order: first
s4:
  test.fail_without_changes:
  - listen:
    - test: s0
  - order: first
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes: []
s7:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s9
    - test: s1
s8:
  test.succeed_with_changes:
  - onchanges:
    - test: s0
  - watch:
    - test: s1
    - test: s0
  - watch_in:
    - test: s5
  - order: last
s9:
  test.succeed_with_changes:
  - onfail_in:
    - test: s1
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - require:
    - test: s9
