"""`rackwright completion`: shell completion of nouns, verbs, options, and the names that the server has now."""

import os
import sys
from collections.abc import Sequence

import typer

from rackwright.cli.main import COMPLETE, NOUNS, is_function, load
from rackwright.cli.output.terminal import say

SHELLS = ("bash", "zsh", "fish")


def main(argv: list[str]) -> int:
    """Run `rackwright completion SHELL`: print the script that makes the shell complete."""
    if len(argv) != 1 or argv[0] not in SHELLS:
        say(f"Usage: rackwright completion {'|'.join(SHELLS)}", file=sys.stderr)
        say('For bash: eval "$(rackwright completion bash)"', file=sys.stderr)
        return 0 if argv in (["-h"], ["--help"]) else 2
    os.environ[COMPLETE] = f"source_{argv[0]}"
    complete()
    return 0


def complete() -> None:
    """Answer a shell, which puts its question and the words typed so far into the environment."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    make_root_app(typed.split()[1:2])(prog_name="rackwright", complete_var=COMPLETE)


def make_root_app(loaded: Sequence[str]) -> typer.Typer:
    """Return one application with all nouns, of which only `loaded` are imported: completion must be quick."""
    root = typer.Typer(add_completion=True, rich_markup_mode=None)
    for noun, (_, line) in NOUNS.items():
        if noun in loaded and not is_function(app := load(noun)):
            root.add_typer(app, name=noun, help=line)
        else:
            root.command(noun, help=line)(_do_nothing)
    return root


def _do_nothing() -> None:
    """Stand for a noun that was not loaded."""
