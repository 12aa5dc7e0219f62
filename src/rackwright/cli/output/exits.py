"""How a command fails: one sentence on standard error, and an exit code that scripts can tell apart."""

import sys
from enum import IntEnum
from typing import NoReturn

from rackwright.cli.output.terminal import say, visible


class Exit(IntEnum):
    """The exit codes of every command that speaks to a server."""

    FAILED = 1
    """The server refused, or the work did not succeed."""
    USAGE = 2
    """The command line itself is wrong."""
    NOT_FOUND = 3
    CONFLICT = 4
    """Something is in the way, or somebody else changed the object first."""
    NOT_ALLOWED = 5
    UNREACHABLE = 6
    """The server does not answer."""


BY_STATUS = {
    401: Exit.NOT_ALLOWED,
    403: Exit.NOT_ALLOWED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    422: Exit.USAGE,
    428: Exit.USAGE,
    503: Exit.UNREACHABLE,
}
"""HTTP status -> exit code; FAILED for all others"""


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """End the command with a sentence and an exit code."""
    say(f"rackwright: {message}", file=sys.stderr)
    sys.exit(code)


def require_person(question: str, yes: bool) -> None:
    """End the command if a question is to be asked and nobody is there to answer it."""
    if not yes and not sys.stdin.isatty():
        fail(f"{question} Nobody is there to ask: repeat with --yes to do it.", Exit.USAGE)


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be undone. Where nobody can answer, `--yes` must be given."""
    if yes:
        return
    require_person(question, yes)
    if input(f"{visible(question)} [y/N] ").strip().lower() not in ("y", "yes"):
        fail("Nothing was done.")
