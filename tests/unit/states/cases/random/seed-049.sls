s0:
  test.succeed_with_changes:
  - unless: 'false'
s1:
  test.fail_without_changes:
  - prereq:
    - test: s2
s2:
  test.fail_without_changes:
  - require:
    - test: s4
    - test: s1
    - test: s3
    - test: s5
  - order: last
s3:
  test.fail_with_changes:
  - onfail_any:
    - test: s4
  - listen:
    - test: s5
  - watch:
    - test: s1
s4:
  test.nop:
  - require:
    - test: s5
s5:
  test.nop: []
