s0:
  test.succeed_with_changes: []
s1:
  test.succeed_with_changes:
  - onlyif: 'false'
s2:
  test.fail_without_changes:
  - onfail:
    - test: s4
s3:
  test.succeed_with_changes:
  - watch:
    - test: s0
  - require:
    - test: s0
s4:
  test.nop:
  - require:
    - test: s6
    - test: s3
  - require_any:
    - test: s0
  - onfail_any:
    - test: s0
    - test: s1
  - order: 1
s5:
  test.nop:
  - onfail_all:
    - test: s3
  - onlyif: 'true'
s6:
  test.nop:
  - watch:
    - test: s0
    - test: s3
  - onfail:
    - test: s0
  - onlyif: 'true'
s7:
  test.fail_with_changes:
  - onchanges:
    - test: s6
  - watch:
    - test: s0
s8:
  test.nop: []
s9:
  test.fail_with_changes:
  - onfail:
    - test: s0
    - test: s5
  - order: 2
  - unless: 'false'
s10:
  test.nop:
  - onfail:
    - test: s0
    - test: s6
  - require:
    - test: s1
    - test: s0
  - order: first
s11:
  test.succeed_with_changes: []
s12:
  test.nop:
  - require:
    - test: s10
    - test: s2
  - onchanges_any:
    - test: s1
    - test: s10
