s0:
  test.nop:
  - onfail_any:
    - test: s6
s1:
  test.succeed_with_changes:
  - watch:
    - test: s3
    - test: s9
  - onchanges:
    - test: s8
    - test: s11
  - onfail_in:
    - test: s5
  - onlyif: 'true'
  - check_cmd: 'false'
s2:
  test.nop:
  - watch_in:
    - test: s8
s3:
  test.fail_without_changes:
  - onfail:
    - test: s11
    - test: s8
  - onfail_in:
    - test: s0
s4:
  test.succeed_with_changes:
  - onfail_any:
    - test: s1
s5:
  test.nop:
  - require:
    - test: s2
    - test: s11
s6:
  test.succeed_with_changes:
  - watch_in:
    - test: s9
  - check_cmd: 'false'
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s11
    - test: s2
  - onchanges:
    - test: s5
  - watch:
    - test: s5
    - test: s2
s8:
  test.fail_without_changes:
  - onchanges:
    - test: s2
s9:
  test.succeed_with_changes:
  - onchanges:
    - test: s11
    - test: s2
    - test: s6
  - onfail:
    - test: s8
  - order: last
  - onlyif: 'true'
s10:
  test.fail_without_changes:
  - require:
    - test: s8
s11:
  test.succeed_with_changes:
  - onfail:
    - test: s2
