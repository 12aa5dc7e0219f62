"""The recipes of docs/adding.md, followed to the letter in a copy of the source; and every file that the plan names."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ADDING = REPOSITORY / "docs" / "adding.md"
ARCHITECTURE = REPOSITORY / "docs" / "architecture.md"
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
RECIPE = re.compile(
    r"^```python (?P<how>new|line) (?P<file>\S+)(?: after (?P<after>[^\n]+))?\n(?P<text>.*?)^```$", re.M | re.S
)
NAMED = re.compile(r"`((?:src/rackwright/)?[a-z_]+/[\w./-]+\.(?:py|ts|svelte)|provision/images/agent/\w+)`")


def recipe(heading: str) -> list[re.Match[str]]:
    """Return the pieces of code below a heading."""
    _, _, rest = ADDING.read_text().partition(f"\n## {heading}\n")
    assert rest, f"docs/adding.md has no heading {heading!r}"
    return list(RECIPE.finditer(rest.partition("\n## ")[0]))


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of the source to follow a recipe in."""
    folder = tmp_path / "src" / "rackwright"
    shutil.copytree(
        REPOSITORY / "src" / "rackwright", folder, ignore=shutil.ignore_patterns("__pycache__", "static", "*.pyc")
    )
    yield tmp_path
    shutil.rmtree(tmp_path)


def follow(copy: Path, heading: str) -> int:
    """Do what a recipe says, and return how many files that touches."""
    files = set()
    for piece in recipe(heading):
        path = copy / piece["file"]
        files.add(path)
        if piece["how"] == "new":
            assert not path.exists(), f"{piece['file']} is there already"
            path.write_text(piece["text"])
        else:
            before = path.read_text()
            line = f"{piece['after']}\n"
            assert before.count(line) == 1, f"{piece['file']} has no line {piece['after']!r}"
            path.write_text(before.replace(line, line + piece["text"]))
    return len(files)


def told_by(copy: Path, *command: str) -> str:
    """Return what a command prints that runs the copy."""
    ended = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_jig_is_one_file(copy: Path) -> None:
    assert follow(copy, "A jig") == 1
    code = """
import asyncio, json
from rackwright.barclamps.loader import known_kinds
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.jigs.echo import EchoJig
from types import SimpleNamespace

barclamp = parse_barclamp("name: x\\njigs: [{name: x-echo, kind: echo}]\\n", "file", known_kinds())
lines = []
outcome = asyncio.run(EchoJig().run(SimpleNamespace(role="web", node="n1"), lines.append))
print(json.dumps([barclamp.jigs[0].kind, lines, outcome.answer]))
"""
    assert json.loads(told_by(copy, "-c", code)) == ["echo", ["web on n1\n"], "succeeded"]


def test_a_hammer_is_one_file(copy: Path) -> None:
    assert follow(copy, "A hammer") == 1
    code = """
import json
from rackwright.api.routes.power import BmcIn
from rackwright.hammers.registry import bmc_kinds
print(json.dumps([list(bmc_kinds()), BmcIn(kind="wall-switch", address="hall").kind]))
"""
    kinds, taken = json.loads(told_by(copy, "-c", code))
    assert "wall-switch" in kinds
    assert taken == "wall-switch"
    assert "wall-switch" in told_by(copy, "-m", "rackwright", "node", "bmc", "--help")


def test_a_state_module_is_one_file(copy: Path, tmp_path: Path) -> None:
    assert follow(copy, "A state module") == 1
    motto = tmp_path / "motto"
    states = tmp_path / "words.sls"
    states.write_text(f"words to live by:\n  motto.set:\n    - name: {motto}\n    - text: Levels, not edges\n")
    told_by(copy, "-m", "rackwright", "state", "apply", str(states))
    assert motto.read_text() == "Levels, not edges"


def test_a_noun_is_a_file_and_a_line(copy: Path) -> None:
    assert follow(copy, "A CLI noun") == 2
    assert "how much there is to do" in told_by(copy, "-m", "rackwright", "--help")
    assert "Say how the work stands." in told_by(copy, "-m", "rackwright", "weather", "--help")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    new = {piece["file"] for piece in RECIPE.finditer(page.read_text()) if piece["how"] == "new"}
    missing = [
        name
        for name in NAMED.findall(page.read_text())
        if name not in new
        and "NAME" not in name
        and not any(
            (base / name).exists() for base in (REPOSITORY / "src/rackwright", REPOSITORY, REPOSITORY / "tests")
        )
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_package_is_in_the_plan() -> None:
    plan = ARCHITECTURE.read_text()
    packages = [path.parent.name for path in (REPOSITORY / "src/rackwright").glob("*/__init__.py")]
    assert [name for name in packages if f"| `{name}/` |" not in plan] == []
