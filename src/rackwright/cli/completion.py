"""Shell completion: nouns, verbs, options, and the names there are on the server now."""

import os
import sys
from collections.abc import Sequence

import typer

from rackwright.cli.main import COMPLETE, NOUNS, is_function, load
from rackwright.cli.output.terminal import say

SHELLS = ("bash", "zsh", "fish")


def main(argv: list[str]) -> int:
    """rackwright completion SHELL: print what makes the shell complete."""
    if len(argv) != 1 or argv[0] not in SHELLS:
        say(f"Usage: rackwright completion {'|'.join(SHELLS)}", file=sys.stderr)
        say('For bash: eval "$(rackwright completion bash)"', file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"]) else 2
    os.environ[COMPLETE] = f"source_{argv[0]}"
    complete()
    return 0


def complete() -> None:
    """Answer a shell, which says in the environment what it wants to know and what was typed so far."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    tree(typed.split()[1:2])(prog_name="rackwright", complete_var=COMPLETE)


def tree(loaded: Sequence[str]) -> typer.Typer:
    """All nouns as one application, of which only these are loaded: completing must not take longer than typing."""
    root = typer.Typer(add_completion=True, rich_markup_mode=None)
    for noun, (_, line) in NOUNS.items():
        if noun in loaded and not is_function(app := load(noun)):
            root.add_typer(app, name=noun, help=line)
        else:
            root.command(noun, help=line)(_nothing)
    return root


def _nothing() -> None:
    """A noun that was not loaded."""
