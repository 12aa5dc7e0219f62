"""Trees: top files, includes, variables, and what templates can use."""

import pytest

from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import Tree, locate_tree
from rackwright.states.refusal import RunRefused

from ..conftest import Write

TOP = """\
base:
  'web-*':
    - web
  'db-1,db-2':
    - match: list
    - db
  'os_family:Deb*':
    - match: grain
    - common
  '^(web|db)-\\d$':
    - match: pcre
    - both
"""


def ids(tree: Tree, sls: list[str] | None, **facts: str) -> list[str]:
    return [state.id for state in build_plan(tree, sls, {}, {"id": "node-1", **facts}).states]


@pytest.mark.parametrize(
    ("node", "family", "expected"),
    [("web-1", "Debian", ["web", "common", "both"]), ("db-2", "RedHat", ["db", "both"]), ("x", "Debian", ["common"])],
)
def test_top_gives_each_node_its_own(write: Write, node: str, family: str, expected: list[str]) -> None:
    files = {name: f"{name}:\n  test.nop\n" for name in ("web", "db", "common", "both")}
    tree, sls = locate_tree(write(top=TOP, **files))
    assert ids(tree, sls, id=node, os_family=family) == expected


def test_top_with_nothing_for_a_node_is_refused(write: Write) -> None:
    tree, sls = locate_tree(write(top="base:\n  'web-*':\n    - web\n", web="a:\n  test.nop\n"))
    with pytest.raises(RunRefused, match="nothing for the node 'node-1'"):
        build_plan(tree, sls, {}, {"id": "node-1"})


def test_variables_come_from_files_then_the_node_then_the_caller(write: Write) -> None:
    root = write(
        **{
            "vars/10-base.yml": "port: 80\nweb:\n  a: 1\n  b: 2\n",
            "vars/20-more.yml": "web:\n  b: 3\n",
            "vars/node/node-1.yml": "web:\n  c: 4\n",
        },
        init="'{{ port }}-{{ pillar.web.a }}{{ vars['web'].b }}{{ salt['pillar.get']('web:c') }}-{{ own }}':\n"
        "  test.nop\n",
    )
    tree, sls = locate_tree(root)
    plan = build_plan(tree, sls, {"port": 8080, "own": "{{ not rendered }}"}, {"id": "node-1"})
    assert [state.id for state in plan.states] == ["8080-134-{{ not rendered }}"]


def test_templates_import_macros_of_the_tree(write: Write) -> None:
    root = write(
        **{"lib/map.jinja": "{% macro nop(name) %}{{ name }}:\n  test.nop{% endmacro %}{% set port = 5 %}"},
        init="{% from 'lib/map.jinja' import nop, port with context %}\n{{ nop('x' ~ port) }}\n",
    )
    tree, sls = locate_tree(root)
    assert ids(tree, sls) == ["x5"]


def test_included_files_may_be_globs_and_relative(write: Write) -> None:
    root = write(
        **{
            "web/init": "include:\n  - .parts.*\n  - ..base\nw:\n  test.nop\n",
            "web/parts/a": "a:\n  test.nop\n",
            "web/parts/b": "b:\n  test.nop\n",
            "base": "z:\n  test.nop\n",
        }
    )
    plan = build_plan(Tree(root), ["web"], {}, {})
    assert [plan.states[plan.graph.owner[vertex]].id for vertex in plan.sequence] == ["a", "b", "z", "w"]


def test_a_renderer_that_is_not_known_is_refused(write: Write) -> None:
    tree, sls = locate_tree(write(init="#!py\ndef run(): return {}\n"))
    with pytest.raises(RunRefused, match="renderer 'py' is not known"):
        build_plan(tree, sls)


def test_rendering_works_beside_other_threads(write: Write) -> None:
    import threading

    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        tree, sls = locate_tree(write(init="{% set x = 'a' %}\n{{ x }}:\n  test.nop\n"))
        assert ids(tree, sls) == ["a"]
    finally:
        stop.set()
        other.join()
