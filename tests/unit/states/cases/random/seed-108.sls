s0:
  test.nop:
  - require:
    - test: s2
  - order: 1
s1:
  test.succeed_with_changes:
  - onlyif: 'true'
s2:
  test.succeed_with_changes:
  - require:
    - test: s9
s3:
  test.nop:
  - onchanges_any:
    - test: s9
    - test: s0
s4:
  test.succeed_with_changes:
  - onfail_any:
    - test: s5
  - watch_in:
    - test: s1
s5:
  test.fail_with_changes:
  - onchanges_in:
    - test: s2
  - order: -1
s6:
  test.fail_with_changes:
  - require:
    - test: s12
  - require_any:
    - test: s8
  - onchanges_any:
    - test: s3
  - listen_in:
    - test: s11
  - onlyif: 'true'
s7:
  test.nop:
  - require:
    - test: s5
  - listen:
    - test: s2
  - order: -1
s8:
  test.fail_without_changes:
  - onchanges_any:
    - test: s7
  - require_any:
    - test: s7
    - test: s5
s9:
  test.succeed_with_changes:
  - watch:
    - test: s7
    - test: s5
  - listen:
    - test: s11
  - require:
    - test: s8
  - onlyif: 'true'
s10:
  test.succeed_with_changes:
  - onfail_all:
    - test: s13
  - check_cmd: 'true'
s11:
  test.fail_with_changes:
  - require_any:
    - test: s0
s12:
  test.fail_without_changes: []
s13:
  test.fail_with_changes:
  - onchanges_any:
    - test: s7
