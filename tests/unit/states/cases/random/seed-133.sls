s0:
  test.nop:
  - require:
    - test: s3
s1:
  test.nop:
  - require:
    - test: s4
    - test: s3
s2:
  test.succeed_with_changes: []
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
  - listen:
    - test: s1
    - test: s13
  - watch_any:
    - test: s7
  - onchanges_in:
    - test: s4
s4:
  test.nop: []
s5:
  test.nop: []
s6:
  test.fail_without_changes:
  - onfail:
    - test: s5
s7:
  test.nop:
  - require_in:
    - test: s1
s8:
  test.nop:
  - onfail_all:
    - test: s6
  - onchanges:
    - test: s13
    - test: s3
  - listen:
    - test: s3
  - order: last
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s13
  - watch:
    - test: s5
  - prereq:
    - test: s18
  - unless: 'false'
s10:
  test.fail_without_changes:
  - require:
    - test: s14
    - test: s9
  - onchanges:
    - test: s18
    - test: s6
  - require_in:
    - test: s15
  - prereq:
    - test: s15
s11:
  test.fail_without_changes:
  - require:
    - test: s7
  - onfail:
    - test: s10
s12:
  test.nop:
  - watch:
    - test: s17
    - test: s5
s13:
  test.fail_without_changes:
  - watch:
    - test: s17
  - check_cmd: 'false'
s14:
  test.fail_without_changes:
  - onfail:
    - test: s8
    - test: s6
    - test: s18
s15:
  test.nop: []
s16:
  test.succeed_with_changes:
  - onchanges:
    - test: s7
s17:
  test.succeed_with_changes:
  - require_in:
    - test: s1
  - unless: 'false'
s18:
  test.succeed_with_changes:
  - onchanges:
    - test: s3
  - onfail_in:
    - test: s8
