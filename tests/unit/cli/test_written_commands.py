"""Every command that documentation and messages tell people to run is one that there is, with options that it has."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from rackwright.cli.main import NOUNS, QUICK, is_function, load

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [
    path
    for folder, endings in (("src/rackwright", (".py", ".yml", ".sh")), ("ui/src", (".svelte", ".ts")))
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in endings and "static" not in path.parts and "migrations" not in path.parts
]
NO_COMMANDS = ("rackwright weather", "rackwright mesh revocations")
"""What begins like a command: the noun of an example that a reader writes, and a word that is signed."""
COMMAND = re.compile(r"\brackwright (?P<words>[a-z][a-z-]*(?: [a-z][a-z-]*)*)(?P<rest>[^`\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
ENDS = re.compile(r"\s[|#;&]|\s--\s|\. |[)\"'”]|\\n|, ")
"""What ends a command within a line: another one, a remark, or the sentence that it stands in."""


@cache
def _command_of(noun: str) -> Any:
    """Return the commands of a noun; None: it reads its arguments itself."""
    app = load(noun)
    return None if is_function(app) else typer.main.get_command(app)


def _mistake(words: list[str], rest: str) -> str | None:
    """Return what is wrong with a command, of which `words` come first."""
    if tuple(words[:2]) in QUICK or any(" ".join(["rackwright", *words]).startswith(text) for text in NO_COMMANDS):
        return None
    if words[0] not in NOUNS:
        return f"there is no {words[0]}"
    command = _command_of(words[0])
    taken = 1
    while verbs := getattr(command, "commands", None):
        if taken == len(words):
            return None  # all of its verbs are meant
        if words[taken] not in verbs:
            return f"{' '.join(words[:taken])} has no {words[taken]}"
        command, taken = verbs[words[taken]], taken + 1
    if command is None:
        return None
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [option for option in OPTION.findall(rest) if option not in known | {"--help"}]
    return f"{' '.join(words[:taken])} has no {unknown[0]}" if unknown else None


def _written_code(page: str) -> Iterator[str]:
    """Yield the code of a page: blocks, and what is between backquotes in its text."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```|((?:^ {4}[^\n]*\n)+)", page, re.DOTALL | re.MULTILINE)
    for fenced, indented in blocks:
        yield from (fenced or indented).splitlines()
    yield from re.findall(r"`([^`\n]+)`", page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_pages_are_there(page: Path) -> None:
    mistakes = [
        f"{match[0]}: {mistake}"
        for code in _written_code(page.read_text())
        for match in COMMAND.finditer(code)
        if (mistake := _mistake(match["words"].split(), ENDS.split(match["rest"])[0]))
    ]
    assert mistakes == []


def test_commands_in_messages_are_there() -> None:
    mistakes = [
        f"{path.relative_to(ROOT)}: {match[0]}: {mistake}"
        for path in SOURCES
        for match in COMMAND.finditer(path.read_text())
        if match["words"].split()[0] in NOUNS and (mistake := _mistake(match["words"].split(), ""))
    ]
    assert mistakes == []
