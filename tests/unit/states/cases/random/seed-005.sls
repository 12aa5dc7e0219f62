s0:
  test.nop:
  - onfail_any:
    - test: s4
  - listen:
    - test: s4
  - watch_in:
    - test: s5
s1:
  test.succeed_with_changes:
  - onchanges_any:
    - test: s4
  - require_in:
    - test: s3
s2:
  test.succeed_with_changes:
  - listen:
    - test: s4
    - test: s1
s3:
  test.succeed_with_changes:
  - watch:
    - test: s4
  - require:
    - test: s4
s4:
  test.nop: []
s5:
  test.nop:
  - require_any:
    - test: s7
  - onfail:
    - test: s0
s6:
  test.succeed_with_changes: []
s7:
  test.fail_without_changes:
  - onchanges_any:
    - test: s8
  - unless: 'true'
s8:
  test.succeed_with_changes:
  - watch:
    - test: s4
  - listen:
    - test: s4
