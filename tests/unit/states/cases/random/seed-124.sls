s0:
  test.fail_without_changes:
  - require:
    - test: s4
    - test: s6
s1:
  test.succeed_with_changes:
  - listen:
    - test: s13
  - require_any:
    - test: s11
s2:
  test.fail_without_changes:
  - require:
    - test: s9
    - test: s3
  - watch:
    - test: s10
    - test: s8
  - onchanges:
    - test: s9
  - prereq:
    - test: s0
s3:
  test.fail_without_changes:
  - require:
    - test: s1
  - onfail_all:
    - test: s1
  - onchanges:
    - test: s11
    - test: s1
s4:
  test.nop:
  - onlyif: 'false'
s5:
  test.fail_without_changes:
  - onfail_all:
    - test: s10
  - require:
    - test: s1
    - test: s9
  - require_any:
    - test: s3
s6:
  test.succeed_with_changes:
  - require:
    - test: s1
  - require_in:
    - test: s15
  - order: last
s7:
  test.nop:
  - require:
    - test: s1
    - test: s12
    - test: s11
  - onchanges_any:
    - test: s1
  - watch_in:
    - test: s5
s8:
  test.nop:
  - onfail_all:
    - test: s11
    - test: s1
  - onfail:
    - test: s1
s9:
  test.nop:
  - onfail:
    - test: s8
  - watch:
    - test: s11
  - prereq:
    - test: s15
s10:
  test.nop:
  - require:
    - test: s14
    - test: s1
  - onchanges:
    - test: s9
    - test: s7
  - order: first
s11:
  test.succeed_with_changes: []
s12:
  test.fail_without_changes:
  - onfail_all:
    - test: s8
  - require:
    - test: s1
s13:
  test.nop:
  - onchanges:
    - test: s7
  - listen_in:
    - test: s5
  - order: -2
s14:
  test.succeed_with_changes:
  - require:
    - test: s3
  - order: first
s15:
  test.fail_without_changes:
  - onfail_all:
    - test: s6
  - onchanges_in:
    - test: s0
