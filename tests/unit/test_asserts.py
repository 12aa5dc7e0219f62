"""No assert of the product does anything: with `python -O` there are none."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/rackwright"
CHANGING = frozenset(
    {
        "acquire",
        "add",
        "append",
        "claim",
        "clear",
        "discard",
        "execute",
        "extend",
        "insert",
        "kill",
        "next",
        "pop",
        "popitem",
        "put",
        "release",
        "remove",
        "run",
        "send",
        "setdefault",
        "start",
        "stop",
        "take",
        "terminate",
        "update",
        "wait",
        "write",
    }
)
"""Methods that change what they are called on, by their names."""


def _effects(test: ast.expr) -> Iterator[str]:
    for node in ast.walk(test):
        if isinstance(node, ast.Await | ast.NamedExpr | ast.Yield | ast.YieldFrom):
            yield type(node).__name__
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CHANGING:
                yield f"{name}()"


def _guilty(tree: ast.AST, name: str) -> list[str]:
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return [f"{name}:{node.lineno}: {effect}" for node in asserts for effect in _effects(node.test)]


def test_nothing_is_done_inside_an_assert() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths
    guilty = [line for path in paths for line in _guilty(ast.parse(path.read_text()), str(path.relative_to(SOURCE)))]
    assert guilty == [], "do it first, and assert what came of it"


def test_what_does_something_is_noticed() -> None:
    source = "assert await take(1)\nassert queue.pop() == 1\nassert (a := 1)\nassert len(a) and is_open(a)\n"
    assert _guilty(ast.parse(source), "here") == [
        "here:1: Await",
        "here:1: take()",
        "here:2: pop()",
        "here:3: NamedExpr",
    ]
