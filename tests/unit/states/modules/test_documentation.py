"""The page about state modules is what the modules say, and they say something about everything."""

import subprocess
import sys
from pathlib import Path

import pytest

from rackwright.states.catalogue import Catalogue
from rackwright.states.module import StateFunction

REPOSITORY = Path(__file__).parents[4]
OURS = ("archive", "cron", "file", "git", "group", "pkg", "pkgrepo", "service", "sysctl", "user")
FUNCTIONS = [
    pytest.param(function, id=f"{module}.{function.name}")
    for module in OURS
    for function in (Catalogue().functions(module) or {}).values()
]


def test_the_page_is_current() -> None:
    script = [sys.executable, str(REPOSITORY / "scripts" / "state-docs"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_and_each_of_its_arguments_is_described(function: StateFunction) -> None:
    assert function.doc.strip()
    assert [argument.name for argument in function.arguments if not argument.help] == []
    names = [argument.name for argument in function.arguments]
    assert len(names) == len(set(names))
    assert "name" in names


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_says_what_it_writes(function: StateFunction) -> None:
    arguments = {argument.name: argument.default for argument in function.arguments}
    arguments.update(name="thing", target="/thing", value="1", source="thing", user="root")
    assert function.resources(arguments)
