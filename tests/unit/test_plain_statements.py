"""No statement hides what it does: no `a or b` on a line of its own, no SQL by replacing parts of other SQL."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/rackwright"
PACKAGES = ("mesh", "states", "store")


def _guilty(tree: ast.AST, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp | ast.IfExp):
            yield f"{name}:{node.lineno}: write an `if`"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
            of = node.func.value
            if isinstance(of, ast.Name) and of.id.lstrip("_").isupper():
                yield f"{name}:{node.lineno}: compose {of.id} from named parts"


def test_every_statement_says_what_it_does() -> None:
    paths = [path for package in PACKAGES for path in sorted((SOURCE / package).rglob("*.py"))]
    assert paths
    guilty = [line for path in paths for line in _guilty(ast.parse(path.read_text()), str(path.relative_to(SOURCE)))]
    assert guilty == []


def test_what_hides_is_noticed() -> None:
    source = "done() or begin()\nbegin() if late else wait()\n_A = _SELECT.replace('a', 'b')\nname.replace('a', '')\n"
    assert list(_guilty(ast.parse(source), "here")) == [
        "here:1: write an `if`",
        "here:2: write an `if`",
        "here:3: compose _SELECT from named parts",
    ]
