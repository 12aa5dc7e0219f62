s0:
  test.succeed_with_changes:
  - order: -1
s1:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s3
  - listen:
    - test: s3
    - test: s0
  - prereq:
    - test: s11
s2:
  test.succeed_with_changes:
  - require_in:
    - test: s5
s3:
  test.succeed_with_changes: []
s4:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s12
s5:
  test.fail_with_changes:
  - listen:
    - test: s2
    - test: s11
  - onchanges:
    - test: s3
  - onfail_in:
    - test: s9
s6:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
    - test: s2
s7:
  test.succeed_with_changes:
  - require:
    - test: s2
  - onfail_any:
    - test: s14
    - test: s8
  - watch:
    - test: s3
s8:
  test.nop:
  - require_any:
    - test: s0
  - onchanges:
    - test: s13
    - test: s0
  - onlyif: 'false'
s9:
  test.fail_without_changes:
  - require_any:
    - test: s0
    - test: s12
s10:
  test.succeed_with_changes: []
s11:
  test.succeed_with_changes:
  - require:
    - test: s10
s12:
  test.nop:
  - onfail:
    - test: s0
  - listen_in:
    - test: s5
s13:
  test.nop:
  - watch:
    - test: s0
    - test: s12
s14:
  test.nop:
  - require_any:
    - test: s3
  - watch:
    - test: s0
    - test: s2
