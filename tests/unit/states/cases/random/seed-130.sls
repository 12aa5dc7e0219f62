s0:
  test.succeed_with_changes:
  - order: -2
s1:
  test.succeed_with_changes:
  - require_any:
    - test: s12
  - require:
    - test: s15
    - test: s10
  - order: 3
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - watch_any:
    - test: s9
  - onfail_all:
    - test: s4
s4:
  test.succeed_with_changes:
  - watch_any:
    - test: s6
    - test: s15
  - listen_in:
    - test: s9
s5:
  test.fail_without_changes:
  - onchanges:
    - test: s18
  - prereq:
    - test: s17
s6:
  test.nop: []
s7:
  test.succeed_with_changes:
  - require_any:
    - test: s6
  - onlyif: 'true'
s8:
  test.fail_without_changes:
  - onchanges:
    - test: s19
  - watch_in:
    - test: s13
  - order: 1
s9:
  test.fail_without_changes:
  - require_in:
    - test: s17
  - order: 1
s10:
  test.nop: []
s11:
  test.succeed_with_changes:
  - onfail:
    - test: s6
    - test: s1
  - require:
    - test: s15
  - onchanges:
    - test: s7
s12:
  test.succeed_with_changes:
  - watch:
    - test: s7
  - require:
    - test: s6
  - onfail:
    - test: s7
  - order: first
s13:
  test.nop:
  - unless: 'false'
s14:
  test.succeed_with_changes:
  - require:
    - test: s1
s15:
  test.succeed_with_changes:
  - onfail_all:
    - test: s10
  - require:
    - test: s10
s16:
  test.succeed_with_changes:
  - onfail:
    - test: s7
  - watch_in:
    - test: s0
s17:
  test.fail_with_changes:
  - onfail:
    - test: s3
    - test: s7
s18:
  test.fail_without_changes:
  - onfail_in:
    - test: s11
s19:
  test.fail_without_changes:
  - require_any:
    - test: s15
  - onchanges_in:
    - test: s5
