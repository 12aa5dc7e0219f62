s0:
  test.nop:
  - require:
    - test: s5
s1:
  test.fail_without_changes:
  - require:
    - test: s4
  - watch_any:
    - test: s12
    - test: s0
  - order: 1
s2:
  test.nop: []
s3:
  test.fail_without_changes:
  - watch:
    - test: s2
    - test: s0
s4:
  test.succeed_with_changes: []
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes:
  - onchanges:
    - test: s5
    - test: s8
  - require_any:
    - test: s10
s7:
  test.succeed_with_changes:
  - require_any:
    - test: s0
  - require_in:
    - test: s2
s8:
  test.nop:
  - onchanges:
    - test: s10
s9:
  test.succeed_with_changes:
  - watch_any:
    - test: s7
    - test: s6
  - prereq:
    - test: s3
  - unless: 'true'
s10:
  test.nop:
  - listen:
    - test: s9
    - test: s3
  - onlyif: 'false'
s11:
  test.succeed_with_changes:
  - require:
    - test: s5
    - test: s7
  - onfail_in:
    - test: s9
s12:
  test.nop:
  - onchanges_any:
    - test: s5
    - test: s0
