s0:
  test.succeed_with_changes:
  - onchanges:
    - test: s4
  - require_any:
    - test: s4
  - watch:
    - test: s4
    - test: s3
s1:
  test.succeed_with_changes:
  - watch:
    - test: s4
  - listen_in:
    - test: s0
s2:
  test.nop:
  - onfail_all:
    - test: s1
    - test: s0
  - onchanges:
    - test: s1
  - onlyif: 'false'
  - check_cmd: 'false'
s3:
  test.nop:
  - onchanges_any:
    - test: s1
    - test: s4
  - listen:
    - test: s0
    - test: s1
  - onchanges_in:
    - test: s2
  - check_cmd: 'true'
s4:
  test.fail_with_changes:
  - onlyif: 'true'
