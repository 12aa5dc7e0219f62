s0:
  test.nop:
  - require:
    - test: s5
    - test: s10
  - onfail_in:
    - test: s3
s1:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s2
s2:
  test.succeed_with_changes:
  - check_cmd: 'true'
s3:
  test.nop:
  - watch_any:
    - test: s9
    - test: s10
  - listen:
    - test: s1
    - test: s10
s4:
  test.fail_without_changes:
  - onchanges:
    - test: s5
  - onfail_any:
    - test: s10
s5:
  test.nop:
  - onchanges:
    - test: s1
s6:
  test.succeed_with_changes:
  - listen:
    - test: s11
    - test: s2
s7:
  test.nop:
  - require:
    - test: s0
    - test: s11
s8:
  test.fail_with_changes:
  - watch_any:
    - test: s1
    - test: s2
s9:
  test.fail_without_changes:
  - onchanges:
    - test: s0
s10:
  test.fail_with_changes:
  - onchanges:
    - test: s5
    - test: s2
s11:
  test.nop:
  - onchanges:
    - test: s10
  - onfail_in:
    - test: s8
s12:
  test.nop:
  - watch_any:
    - test: s8
    - test: s2
