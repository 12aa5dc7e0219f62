s0:
  test.succeed_with_changes:
  - watch:
    - test: s5
  - listen_in:
    - test: s1
  - order: -1
  - check_cmd: 'false'
s1:
  test.fail_with_changes:
  - onlyif: 'true'
s2:
  test.nop:
  - onfail:
    - test: s6
    - test: s8
  - require:
    - test: s5
s3:
  test.succeed_with_changes:
  - onfail_all:
    - test: s5
  - require:
    - test: s8
  - onchanges_in:
    - test: s2
s4:
  test.nop:
  - listen:
    - test: s5
  - watch:
    - test: s7
  - require:
    - test: s6
    - test: s3
  - prereq:
    - test: s0
s5:
  test.succeed_with_changes:
  - require_any:
    - test: s7
  - onchanges:
    - test: s7
    - test: s8
s6:
  test.succeed_with_changes:
  - onlyif: 'true'
s7:
  test.nop:
  - prereq:
    - test: s2
s8:
  test.fail_without_changes:
  - watch:
    - test: s7
  - onfail:
    - test: s7
