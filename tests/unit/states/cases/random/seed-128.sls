s0:
  test.nop: []
s1:
  test.succeed_with_changes: []
s2:
  test.succeed_with_changes:
  - onchanges:
    - test: s13
  - order: first
s3:
  test.succeed_with_changes:
  - onfail:
    - test: s1
s4:
  test.fail_without_changes:
  - listen:
    - test: s3
  - onchanges:
    - test: s3
s5:
  test.nop:
  - require:
    - test: s2
    - test: s12
s6:
  test.fail_without_changes:
  - onchanges:
    - test: s5
s7:
  test.fail_with_changes:
  - onfail:
    - test: s0
s8:
  test.nop:
  - require:
    - test: s9
  - listen_in:
    - test: s6
s9:
  test.nop:
  - onfail_any:
    - test: s1
  - require_any:
    - test: s3
  - watch:
    - test: s1
s10:
  test.fail_without_changes:
  - require_any:
    - test: s9
  - watch:
    - test: s3
  - onfail:
    - test: s3
    - test: s4
  - require_in:
    - test: s12
  - unless: 'true'
s11:
  test.fail_without_changes:
  - onfail_all:
    - test: s10
  - onchanges:
    - test: s13
    - test: s4
  - require:
    - test: s10
  - order: -2
  - unless: 'true'
s12:
  test.nop:
  - require:
    - test: s4
s13:
  test.succeed_with_changes:
  - require_any:
    - test: s1
  - onchanges:
    - test: s9
  - onfail_any:
    - test: s14
s14:
  test.fail_without_changes:
  - onchanges:
    - test: s9
