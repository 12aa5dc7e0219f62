s0:
  test.nop:
  - listen_in:
    - test: s1
  - check_cmd: 'true'
s1:
  test.nop:
  - require_any:
    - test: s0
s2:
  test.succeed_with_changes:
  - watch:
    - test: s1
    - test: s0
  - require:
    - test: s4
  - onfail_in:
    - test: s3
  - prereq:
    - test: s3
  - unless: 'true'
s3:
  test.succeed_with_changes:
  - onfail_any:
    - test: s1
  - onfail_all:
    - test: s4
s4:
  test.fail_without_changes:
  - watch:
    - test: s0
  - onchanges:
    - test: s1
  - onchanges_any:
    - test: s0
  - onchanges_in:
    - test: s2
  - order: 3
