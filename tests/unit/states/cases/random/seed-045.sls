s0:
  test.nop:
  - require:
    - test: s4
    - test: s1
s1:
  test.nop:
  - require_in:
    - test: s0
s2:
  test.fail_with_changes:
  - require:
    - test: s3
  - onfail:
    - test: s8
s3:
  test.succeed_with_changes:
  - require:
    - test: s1
  - onlyif: 'false'
s4:
  test.succeed_with_changes:
  - require_any:
    - test: s5
  - onchanges_any:
    - test: s1
    - test: s3
  - listen_in:
    - test: s8
s5:
  test.succeed_with_changes:
  - onchanges:
    - test: s1
  - require:
    - test: s3
    - test: s1
  - order: 3
s6:
  test.nop:
  - watch:
    - test: s4
  - onchanges:
    - test: s3
    - test: s8
  - require:
    - test: s0
s7:
  test.fail_without_changes:
  - require:
    - test: s0
s8:
  test.succeed_with_changes:
  - require_any:
    - test: s4
    - test: s3
  - onfail_all:
    - test: s1
