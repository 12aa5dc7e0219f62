s0:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s19
  - watch:
    - test: s18
    - test: s1
s1:
  test.nop:
  - onchanges:
    - test: s17
  - watch_any:
    - test: s17
  - require:
    - test: s17
  - order: 2
s2:
  test.fail_without_changes:
  - onfail_any:
    - test: s1
    - test: s17
  - watch_in:
    - test: s19
s3:
  test.nop:
  - require:
    - test: s19
  - unless: 'true'
s4:
  test.succeed_with_changes:
  - watch:
    - test: s16
    - test: s11
    - test: s6
    - test: s14
  - onfail:
    - test: s16
  - order: -2
s5:
  test.nop:
  - onfail_all:
    - test: s11
  - check_cmd: 'true'
s6:
  test.nop:
  - watch:
    - test: s14
  - order: 2
s7:
  test.succeed_with_changes:
  - onfail:
    - test: s14
  - require_in:
    - test: s3
s8:
  test.nop: []
s9:
  test.succeed_with_changes:
  - onfail_any:
    - test: s17
  - order: -1
s10:
  test.nop:
  - onfail_all:
    - test: s7
s11:
  test.succeed_with_changes:
  - require:
    - test: s2
    - test: s18
  - onchanges:
    - test: s1
    - test: s2
s12:
  test.succeed_with_changes:
  - watch:
    - test: s2
  - onfail_all:
    - test: s1
s13:
  test.nop:
  - onfail:
    - test: s12
    - test: s4
  - require:
    - test: s4
    - test: s2
  - watch_any:
    - test: s15
s14:
  test.fail_with_changes:
  - onchanges_any:
    - test: s18
    - test: s2
  - order: -2
s15:
  test.nop:
  - require:
    - test: s18
    - test: s14
    - test: s11
s16:
  test.succeed_with_changes:
  - watch:
    - test: s18
  - onfail_all:
    - test: s2
  - require:
    - test: s1
    - test: s12
s17:
  test.succeed_with_changes:
  - listen_in:
    - test: s5
  - order: last
s18:
  test.nop:
  - watch:
    - test: s2
  - onfail:
    - test: s12
  - onfail_in:
    - test: s13
s19:
  test.succeed_with_changes:
  - onfail_all:
    - test: s1
  - listen_in:
    - test: s3
