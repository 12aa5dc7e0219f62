s0:
  test.fail_without_changes:
  - onchanges:
    - test: s12
  - require_any:
    - test: s12
s1:
  test.succeed_with_changes: []
s2:
  test.succeed_with_changes:
  - onlyif: 'false'
s3:
  test.nop:
  - watch:
    - test: s19
  - onchanges:
    - test: s8
    - test: s12
  - require:
    - test: s8
s4:
  test.succeed_with_changes:
  - require:
    - test: s5
    - test: s19
  - listen:
    - test: s13
s5:
  test.fail_without_changes:
  - onfail:
    - test: s8
  - require_any:
    - test: s0
  - order: 3
s6:
  test.succeed_with_changes:
  - require:
    - test: s5
s7:
  test.succeed_with_changes: []
s8:
  test.succeed_with_changes: []
s9:
  test.succeed_with_changes:
  - onchanges:
    - test: s0
    - test: s1
  - order: last
s10:
  test.succeed_with_changes: []
s11:
  test.fail_without_changes:
  - check_cmd: 'true'
s12:
  test.succeed_with_changes:
  - order: 1
s13:
  test.fail_without_changes:
  - onchanges:
    - test: s5
  - require:
    - test: s1
s14:
  test.succeed_with_changes:
  - onfail:
    - test: s0
  - check_cmd: 'true'
s15:
  test.nop: []
s16:
  test.nop:
  - watch:
    - test: s14
s17:
  test.fail_without_changes:
  - require:
    - test: s0
    - test: s1
  - require_any:
    - test: s3
s18:
  test.nop:
  - onchanges:
    - test: s5
    - test: s1
s19:
  test.succeed_with_changes:
  - order: 2
  - unless: 'false'
