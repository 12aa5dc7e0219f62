{% for name in ['c', 'a', 'b'] %}
{{ name }}:
  test.nop
{% endfor %}
