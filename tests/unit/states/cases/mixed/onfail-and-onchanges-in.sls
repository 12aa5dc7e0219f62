a:
  test.fail_with_changes:
    - onfail_in:
      - test: rescue
    - onchanges_in:
      - test: notify
rescue:
  test.succeed_with_changes
notify:
  test.succeed_with_changes
