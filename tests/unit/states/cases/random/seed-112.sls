s0:
  test.nop:
  - watch:
    - test: s16
    - test: s11
    - test: s15
  - unless: 'false'
s1:
  test.nop:
  - watch_in:
    - test: s5
  - onlyif: 'false'
s2:
  test.fail_without_changes:
  - listen:
    - test: s5
  - order: 3
s3:
  test.nop:
  - watch_any:
    - test: s6
  - order: -1
s4:
  test.succeed_with_changes:
  - require:
    - test: s1
  - onfail_any:
    - test: s17
    - test: s6
  - prereq:
    - test: s15
s5:
  test.nop:
  - require_any:
    - test: s7
s6:
  test.succeed_with_changes:
  - watch_any:
    - test: s11
  - onfail:
    - test: s17
s7:
  test.nop:
  - onchanges_any:
    - test: s11
  - onchanges:
    - test: s17
s8:
  test.nop:
  - watch:
    - test: s7
    - test: s16
s9:
  test.fail_without_changes:
  - watch:
    - test: s10
    - test: s17
    - test: s7
  - onchanges:
    - test: s7
    - test: s6
s10:
  test.nop:
  - require:
    - test: s3
  - listen_in:
    - test: s12
s11:
  test.nop:
  - watch_any:
    - test: s17
    - test: s16
  - require:
    - test: s16
  - order: 3
s12:
  test.nop:
  - require:
    - test: s1
    - test: s3
    - test: s5
    - test: s0
s13:
  test.succeed_with_changes:
  - require:
    - test: s3
  - watch:
    - test: s15
  - unless: 'true'
s14:
  test.nop:
  - watch:
    - test: s6
s15:
  test.nop:
  - watch:
    - test: s16
  - require:
    - test: s6
s16:
  test.fail_without_changes: []
s17:
  test.nop:
  - watch_in:
    - test: s11
s18:
  test.fail_without_changes:
  - watch:
    - test: s2
    - test: s15
