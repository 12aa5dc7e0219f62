s0:
  test.nop:
  - onchanges:
    - test: s17
  - order: last
s1:
  test.succeed_with_changes:
  - onfail_in:
    - test: s10
s2:
  test.succeed_with_changes:
  - require:
    - test: s0
  - require_any:
    - test: s12
s3:
  test.nop:
  - onchanges:
    - test: s18
  - watch_any:
    - test: s8
  - require_any:
    - test: s15
  - order: 1
s4:
  test.fail_with_changes:
  - onfail:
    - test: s9
    - test: s5
  - listen:
    - test: s2
    - test: s0
  - order: -2
s5:
  test.nop: []
s6:
  test.fail_without_changes:
  - listen:
    - test: s11
s7:
  test.nop:
  - onfail:
    - test: s13
s8:
  test.fail_without_changes:
  - onchanges_any:
    - test: s17
    - test: s19
  - require:
    - test: s19
  - order: first
s9:
  test.nop:
  - onchanges_any:
    - test: s19
    - test: s8
  - order: last
s10:
  test.succeed_with_changes:
  - require:
    - test: s12
s11:
  test.fail_without_changes:
  - require:
    - test: s0
  - onchanges:
    - test: s17
    - test: s19
s12:
  test.succeed_with_changes:
  - onchanges:
    - test: s1
  - require_any:
    - test: s15
s13:
  test.succeed_with_changes:
  - order: 1
s14:
  test.nop:
  - check_cmd: 'true'
s15:
  test.succeed_with_changes: []
s16:
  test.fail_with_changes:
  - listen:
    - test: s14
    - test: s2
  - order: -1
  - unless: 'true'
s17:
  test.fail_with_changes:
  - watch_in:
    - test: s13
  - order: last
s18:
  test.nop:
  - require:
    - test: s17
    - test: s8
  - listen_in:
    - test: s12
s19:
  test.fail_without_changes:
  - order: 1
