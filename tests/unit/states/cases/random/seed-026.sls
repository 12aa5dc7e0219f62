s0:
  test.fail_with_changes: []
s1:
  test.fail_without_changes:
  - watch:
    - test: s2
  - onchanges:
    - test: s2
s2:
  test.fail_without_changes:
  - onchanges_in:
    - test: s7
  - order: first
s3:
  test.fail_without_changes:
  - onfail:
    - test: s4
    - test: s7
  - watch:
    - test: s2
s4:
  test.nop:
  - require:
    - test: s0
  - listen_in:
    - test: s3
  - prereq:
    - test: s3
s5:
  test.succeed_with_changes:
  - require:
    - test: s0
  - watch_any:
    - test: s6
    - test: s2
  - onchanges_in:
    - test: s3
s6:
  test.fail_without_changes:
  - watch_any:
    - test: s2
  - require_any:
    - test: s1
    - test: s2
  - require_in:
    - test: s7
  - prereq:
    - test: s7
  - check_cmd: 'true'
s7:
  test.nop:
  - order: 2
