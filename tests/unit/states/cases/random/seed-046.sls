s0:
  test.nop:
  - onchanges_in:
    - test: s3
  - order: 1
s1:
  test.succeed_with_changes:
  - onfail_any:
    - test: s2
s2:
  test.succeed_with_changes:
  - watch:
    - test: s5
s3:
  test.nop:
  - require:
    - test: s1
    - test: s2
  - order: 1
s4:
  test.nop:
  - onfail_all:
    - test: s5
  - listen:
    - test: s0
s5:
  test.nop: []
