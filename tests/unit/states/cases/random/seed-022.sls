s0:
  test.nop:
  - require:
    - test: s4
    - test: s6
  - listen_in:
    - test: s1
  - order: first
s1:
  test.succeed_with_changes:
  - require:
    - test: s5
    - test: s6
  - order: 1
s2:
  test.succeed_with_changes:
  - onfail_all:
    - test: s6
  - unless: 'false'
s3:
  test.succeed_with_changes:
  - onfail_all:
    - test: s5
s4:
  test.nop:
  - onfail_all:
    - test: s2
  - require:
    - test: s5
  - onfail_in:
    - test: s0
s5:
  test.nop:
  - watch:
    - test: s2
    - test: s6
  - listen:
    - test: s2
  - order: last
s6:
  test.succeed_with_changes:
  - onfail_in:
    - test: s0
