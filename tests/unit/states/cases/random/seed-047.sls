s0:
  test.succeed_with_changes:
  - require:
    - test: s8
  - onchanges:
    - test: s8
s1:
  test.nop:
  - onchanges:
    - test: s9
  - onfail:
    - test: s6
    - test: s9
  - listen:
    - test: s4
    - test: s9
s2:
  test.fail_without_changes:
  - require:
    - test: s9
  - require_any:
    - test: s9
    - test: s5
  - watch_in:
    - test: s6
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s8
    - test: s9
  - prereq:
    - test: s4
s4:
  test.nop:
  - require:
    - test: s2
    - test: s5
s5:
  test.nop:
  - listen_in:
    - test: s7
s6:
  test.succeed_with_changes:
  - onfail_all:
    - test: s9
    - test: s7
s7:
  test.nop:
  - watch:
    - test: s2
  - watch_in:
    - test: s6
  - order: 2
  - unless: 'false'
s8:
  test.succeed_with_changes:
  - watch_in:
    - test: s9
s9:
  test.nop: []
