s0:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s11
  - watch:
    - test: s1
s1:
  test.nop:
  - unless: 'false'
s2:
  test.succeed_with_changes:
  - watch_any:
    - test: s3
  - watch:
    - test: s4
  - watch_in:
    - test: s10
  - order: 3
s3:
  test.succeed_with_changes:
  - onfail_any:
    - test: s11
    - test: s7
  - onfail_all:
    - test: s1
    - test: s11
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s13
  - watch:
    - test: s6
s6:
  test.succeed_with_changes:
  - require:
    - test: s1
  - order: last
  - onlyif: 'false'
s7:
  test.fail_without_changes:
  - onchanges:
    - test: s1
    - test: s11
s8:
  test.fail_without_changes:
  - onchanges:
    - test: s3
s9:
  test.succeed_with_changes:
  - watch:
    - test: s4
    - test: s6
    - test: s3
  - onchanges:
    - test: s3
s10:
  test.succeed_with_changes:
  - watch:
    - test: s12
s11:
  test.succeed_with_changes:
  - onfail_any:
    - test: s1
  - onfail:
    - test: s1
s12:
  test.nop:
  - listen:
    - test: s7
  - order: 3
s13:
  test.succeed_with_changes:
  - onfail_all:
    - test: s3
