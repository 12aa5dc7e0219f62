s0:
  test.succeed_with_changes:
  - onfail:
    - test: s10
    - test: s8
s1:
  test.succeed_with_changes:
  - watch:
    - test: s10
  - onchanges:
    - test: s8
  - onfail:
    - test: s10
    - test: s0
  - require_in:
    - test: s6
  - prereq:
    - test: s6
s2:
  test.fail_with_changes:
  - onfail:
    - test: s10
s3:
  test.nop:
  - require:
    - test: s10
  - onchanges:
    - test: s0
  - onfail_in:
    - test: s5
  - onlyif: 'true'
s4:
  test.nop:
  - require:
    - test: s8
  - listen:
    - test: s0
  - watch:
    - test: s8
s5:
  test.succeed_with_changes: []
s6:
  test.nop:
  - onchanges:
    - test: s2
  - onlyif: 'true'
s7:
  test.succeed_with_changes:
  - check_cmd: 'false'
s8:
  test.nop: []
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s0
    - test: s5
  - watch_in:
    - test: s1
  - onlyif: 'false'
s10:
  test.nop:
  - onchanges:
    - test: s8
