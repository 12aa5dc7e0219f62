{% set wanted = false %}
a:
  test.nop
{% if wanted %}
b:
  test.nop
{% endif %}
