"""Every command that destroys something asks first; where nobody can answer, it needs --yes and says so."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tests.support.servers.command_line import Cli

from rackwright.cli.main import NOUNS, is_function, load
from rackwright.cli.output.exits import Exit

DESTROYING = frozenset(
    [
        "delete",
        "remove",
        "free",
        "revoke",
        "unset",
        "discard",
        "reinstall",
        "cancel",
        "leave",
        "recover",
        "rollback",
        "recall",
        "deactivate",
        "down",
        "power",
        "reset",
        "forget",
        "purge",
        "wipe",
        "clear",
        "drop",
        "stop",
    ]
)
"""Verbs that destroy something that somebody may miss."""
HARMLESS = {
    "deployment rollback": "opens a proposal, which can be discarded; nothing changes before a commit, which asks",
    "deployment recall": "opens a proposal and holds the work; a discard ends the hold",
    "lab down": "machines that Ctrl-C ends just so, and that hold nothing of anybody's",
    "mesh demo down": "servers that were made to be tried",
}
ARGUMENTS = {"node power": ["1", "off"], "mesh recover": ["--from-snapshot"], "attrib unset": ["node/1", "1"]}
"""Arguments with which a command destroys something, if one word for each argument is not enough."""


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for verb, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {verb}")
        else:
            yield f"{name} {verb}", command


def _destroying() -> dict[str, Any]:
    commands: dict[str, Any] = {}
    for noun in NOUNS:
        app: Any = load(noun)
        if not is_function(app) and hasattr(group := typer.main.get_command(app), "commands"):
            commands |= dict(_commands(group, noun))
    return {name: command for name, command in commands.items() if name.split()[-1] in DESTROYING}


def test_what_is_called_harmless_is_there() -> None:
    assert HARMLESS.keys() <= _destroying().keys()


@pytest.mark.parametrize("name", sorted(_destroying().keys() - HARMLESS.keys()))
def test_what_destroys_asks_and_needs_yes_where_nobody_is(name: str, tmp_path: Any) -> None:
    command = _destroying()[name]
    needed = [
        parameter for parameter in command.params if parameter.param_type_name == "argument" and parameter.required
    ]
    words = ARGUMENTS.get(name) or ["1"] * len(needed)
    ended = Cli("http://127.0.0.1:1", tmp_path)(*name.split(), *words)
    assert ended.code == Exit.USAGE, ended.err
    assert "Nobody is there to ask: repeat with --yes" in ended.err
