s0:
  test.nop:
  - onchanges:
    - test: s17
    - test: s7
s1:
  test.fail_without_changes:
  - listen_in:
    - test: s3
  - order: -2
  - check_cmd: 'true'
s2:
  test.fail_with_changes:
  - watch:
    - test: s9
  - require:
    - test: s8
s3:
  test.nop:
  - onfail:
    - test: s2
    - test: s9
  - listen_in:
    - test: s11
  - order: -1
s4:
  test.succeed_with_changes:
  - watch:
    - test: s9
    - test: s8
  - onchanges:
    - test: s8
    - test: s7
s5:
  test.fail_without_changes: []
s6:
  test.nop:
  - onchanges:
    - test: s0
    - test: s17
s7:
  test.nop:
  - order: -1
s8:
  test.fail_without_changes:
  - require:
    - test: s7
    - test: s17
  - onfail_in:
    - test: s2
s9:
  test.succeed_with_changes:
  - watch_any:
    - test: s8
    - test: s7
s10:
  test.fail_without_changes:
  - require_any:
    - test: s16
  - onlyif: 'true'
s11:
  test.fail_without_changes:
  - onfail:
    - test: s1
  - require:
    - test: s6
    - test: s10
s12:
  test.nop:
  - onfail_all:
    - test: s7
  - onchanges_in:
    - test: s3
  - order: -1
s13:
  test.fail_without_changes:
  - onchanges:
    - test: s16
    - test: s9
s14:
  test.succeed_with_changes:
  - onchanges:
    - test: s9
    - test: s8
  - require:
    - test: s17
s15:
  test.fail_without_changes:
  - listen:
    - test: s4
  - order: -2
s16:
  test.nop:
  - require:
    - test: s8
    - test: s7
    - test: s17
  - onchanges:
    - test: s7
s17:
  test.fail_with_changes:
  - require:
    - test: s7
  - unless: 'false'
s18:
  test.succeed_with_changes:
  - watch:
    - test: s8
    - test: s16
    - test: s0
