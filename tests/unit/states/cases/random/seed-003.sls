s0:
  test.nop:
  - onchanges:
    - test: s1
    - test: s6
  - onfail_any:
    - test: s6
    - test: s5
  - require_any:
    - test: s1
    - test: s6
s1:
  test.succeed_with_changes:
  - onlyif: 'false'
s2:
  test.fail_without_changes:
  - require_any:
    - test: s7
    - test: s5
  - onchanges_any:
    - test: s3
  - order: last
s3:
  test.succeed_with_changes:
  - onchanges:
    - test: s6
  - onfail:
    - test: s6
    - test: s5
  - onlyif: 'true'
s4:
  test.nop: []
s5:
  test.fail_without_changes:
  - onfail_any:
    - test: s1
  - require:
    - test: s1
  - order: 3
s6:
  test.succeed_with_changes:
  - listen:
    - test: s4
  - onchanges:
    - test: s5
  - require_in:
    - test: s7
s7:
  test.fail_without_changes:
  - require:
    - test: s3
  - prereq:
    - test: s2
