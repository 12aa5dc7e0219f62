s0:
  test.nop:
  - require_any:
    - test: s3
    - test: s1
s1:
  test.succeed_with_changes:
  - watch_in:
    - test: s3
s2:
  test.succeed_with_changes: []
s3:
  test.nop:
  - watch_any:
    - test: s1
  - onchanges_in:
    - test: s0
  - onlyif: 'false'
s4:
  test.fail_without_changes:
  - onchanges:
    - test: s9
  - watch:
    - test: s9
  - unless: 'false'
s5:
  test.nop:
  - onchanges:
    - test: s6
    - test: s7
s6:
  test.fail_with_changes: []
s7:
  test.nop:
  - onchanges:
    - test: s0
s8:
  test.succeed_with_changes:
  - onfail_any:
    - test: s7
    - test: s0
  - watch:
    - test: s1
  - order: 3
s9:
  test.nop:
  - require:
    - test: s7
    - test: s3
    - test: s8
  - order: first
s10:
  test.succeed_with_changes:
  - watch:
    - test: s0
