s0:
  test.succeed_with_changes:
  - onfail_all:
    - test: s4
  - require:
    - test: s4
  - watch_any:
    - test: s4
  - onlyif: 'false'
  - check_cmd: 'false'
s1:
  test.nop:
  - require:
    - test: s4
    - test: s0
  - watch:
    - test: s0
    - test: s4
  - check_cmd: 'true'
s2:
  test.succeed_with_changes:
  - watch:
    - test: s4
    - test: s0
  - onfail_in:
    - test: s6
s3:
  test.nop:
  - onfail:
    - test: s5
s4:
  test.fail_without_changes:
  - onfail_in:
    - test: s0
s5:
  test.nop:
  - listen:
    - test: s0
    - test: s1
  - watch:
    - test: s2
    - test: s6
s6:
  test.fail_without_changes:
  - onfail:
    - test: s0
  - onfail_all:
    - test: s1
    - test: s4
  - onlyif: 'false'
