include-conf:
  test.succeed_with_changes:
    - require:
      - test: package
service:
  test.nop:
    - watch:
      - test: include-conf
    - require:
      - test: package
package:
  test.succeed_with_changes
check:
  cmd.run:
    - name: echo up
    - onchanges:
      - test: service
alarm:
  cmd.run:
    - name: echo down
    - onfail:
      - test: service
