s0:
  test.nop:
  - onchanges:
    - test: s7
  - require:
    - test: s4
s1:
  test.nop:
  - onchanges:
    - test: s7
  - require_in:
    - test: s15
  - prereq:
    - test: s12
s2:
  test.fail_without_changes:
  - onfail_any:
    - test: s7
    - test: s9
s3:
  test.fail_with_changes:
  - prereq:
    - test: s6
  - order: first
  - unless: 'false'
s4:
  test.nop: []
s5:
  test.succeed_with_changes:
  - watch_any:
    - test: s2
  - watch:
    - test: s9
    - test: s1
s6:
  test.succeed_with_changes:
  - watch:
    - test: s2
    - test: s13
  - listen:
    - test: s13
  - watch_any:
    - test: s4
    - test: s1
  - unless: 'false'
s7:
  test.nop: []
s8:
  test.nop:
  - watch:
    - test: s14
s9:
  test.succeed_with_changes:
  - watch:
    - test: s7
s10:
  test.fail_without_changes:
  - watch_any:
    - test: s3
    - test: s4
  - require:
    - test: s3
  - order: -1
  - onlyif: 'false'
s11:
  test.succeed_with_changes:
  - onchanges:
    - test: s4
s12:
  test.nop:
  - onchanges:
    - test: s2
    - test: s1
  - onfail:
    - test: s10
  - listen:
    - test: s3
s13:
  test.succeed_with_changes: []
s14:
  test.nop: []
s15:
  test.succeed_with_changes:
  - prereq:
    - test: s5
