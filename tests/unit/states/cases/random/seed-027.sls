s0:
  test.nop:
  - watch:
    - test: s5
  - onfail_any:
    - test: s9
  - order: -2
s1:
  test.nop:
  - onfail:
    - test: s9
    - test: s8
    - test: s2
  - onfail_any:
    - test: s2
  - order: 2
s2:
  test.fail_without_changes:
  - watch_in:
    - test: s3
  - order: -1
  - unless: 'false'
s3:
  test.succeed_with_changes:
  - require:
    - test: s9
  - onchanges_any:
    - test: s0
s4:
  test.succeed_with_changes:
  - watch:
    - test: s8
s5:
  test.succeed_with_changes:
  - listen:
    - test: s1
    - test: s4
  - order: first
s6:
  test.succeed_with_changes:
  - require_in:
    - test: s5
s7:
  test.succeed_with_changes:
  - watch_any:
    - test: s8
    - test: s6
  - watch:
    - test: s6
s8:
  test.nop: []
s9:
  test.succeed_with_changes:
  - onfail_any:
    - test: s6
    - test: s7
  - onfail:
    - test: s5
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s0
    - test: s3
  - listen_in:
    - test: s4
  - unless: 'false'
s11:
  test.succeed_with_changes:
  - watch:
    - test: s0
    - test: s2
