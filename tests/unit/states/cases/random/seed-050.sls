s0:
  test.fail_without_changes:
  - onfail:
    - test: s6
s1:
  test.succeed_with_changes:
  - require:
    - test: s9
  - onfail:
    - test: s9
    - test: s8
  - onchanges_in:
    - test: s5
s2:
  test.nop:
  - onchanges_any:
    - test: s8
  - order: -1
s3:
  test.fail_without_changes:
  - watch_any:
    - test: s11
    - test: s2
  - onfail_any:
    - test: s11
    - test: s7
  - require:
    - test: s11
  - onchanges_in:
    - test: s4
s4:
  test.succeed_with_changes:
  - watch:
    - test: s10
    - test: s1
s5:
  test.succeed_with_changes:
  - prereq:
    - test: s4
s6:
  test.succeed_with_changes:
  - watch_any:
    - test: s9
  - require:
    - test: s9
  - onfail:
    - test: s9
  - listen_in:
    - test: s0
s7:
  test.nop: []
s8:
  test.fail_with_changes:
  - require:
    - test: s6
  - unless: 'true'
s9:
  test.nop:
  - prereq:
    - test: s7
s10:
  test.succeed_with_changes:
  - onfail:
    - test: s2
  - listen_in:
    - test: s7
s11:
  test.fail_without_changes:
  - require_in:
    - test: s0
  - prereq:
    - test: s10
