s0:
  test.succeed_with_changes:
  - onfail_all:
    - test: s6
  - onchanges:
    - test: s6
  - onlyif: 'false'
s1:
  test.nop:
  - require:
    - test: s3
s2:
  test.fail_without_changes:
  - onchanges:
    - test: s4
    - test: s3
  - require:
    - test: s4
s3:
  test.nop:
  - require_in:
    - test: s1
  - order: 2
s4:
  test.nop:
  - onchanges_any:
    - test: s6
    - test: s0
  - listen:
    - test: s2
  - prereq:
    - test: s5
s5:
  test.fail_with_changes: []
s6:
  test.fail_with_changes: []
