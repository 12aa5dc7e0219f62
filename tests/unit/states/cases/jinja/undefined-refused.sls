a:
  test.show_notification:
    - text: {{ nobody_defined_me.attribute }}
