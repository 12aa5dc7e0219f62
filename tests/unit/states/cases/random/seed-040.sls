s0:
  test.nop:
  - require:
    - test: s3
    - test: s1
  - watch:
    - test: s10
    - test: s1
    - test: s6
    - test: s2
s1:
  test.nop:
  - require:
    - test: s10
  - onchanges:
    - test: s7
    - test: s11
  - onchanges_in:
    - test: s8
s2:
  test.succeed_with_changes:
  - watch_any:
    - test: s11
  - watch:
    - test: s11
  - require:
    - test: s11
  - prereq:
    - test: s4
s3:
  test.nop:
  - onchanges:
    - test: s5
    - test: s1
  - require:
    - test: s10
  - watch:
    - test: s11
    - test: s1
s4:
  test.nop:
  - onchanges_any:
    - test: s2
    - test: s11
  - onchanges_in:
    - test: s0
s5:
  test.succeed_with_changes: []
s6:
  test.succeed_with_changes:
  - require:
    - test: s10
    - test: s1
  - check_cmd: 'false'
s7:
  test.nop:
  - onfail:
    - test: s11
    - test: s2
  - listen:
    - test: s9
    - test: s4
s8:
  test.nop:
  - unless: 'false'
  - check_cmd: 'true'
s9:
  test.succeed_with_changes:
  - require:
    - test: s5
s10:
  test.succeed_with_changes:
  - order: first
s11:
  test.succeed_with_changes: []
