s0:
  test.succeed_with_changes:
  - watch:
    - test: s8
  - require:
    - test: s7
s1:
  test.nop:
  - check_cmd: 'false'
s2:
  test.fail_with_changes:
  - onfail:
    - test: s3
    - test: s8
  - require_any:
    - test: s8
    - test: s3
s3:
  test.succeed_with_changes:
  - require:
    - test: s1
  - watch:
    - test: s8
    - test: s4
  - require_in:
    - test: s2
  - prereq:
    - test: s2
s4:
  test.fail_without_changes:
  - watch:
    - test: s1
s5:
  test.nop:
  - onfail_all:
    - test: s1
  - require:
    - test: s1
  - listen_in:
    - test: s0
  - order: first
s6:
  test.nop:
  - onfail_all:
    - test: s1
    - test: s2
  - onchanges:
    - test: s1
  - watch_in:
    - test: s0
s7:
  test.nop:
  - onchanges:
    - test: s8
  - watch:
    - test: s8
s8:
  test.nop:
  - listen:
    - test: s5
  - order: -1
