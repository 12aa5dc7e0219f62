# test: true
a:
  test.succeed_with_changes:
    - retry:
        attempts: 4
        interval: 7
        splay: 2
