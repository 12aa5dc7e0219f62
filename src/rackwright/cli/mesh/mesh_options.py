"""What the verbs of `rackwright mesh` share: three options, and errors as one sentence that says what to do."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from rackwright.cli.output.terminal import say
from rackwright.mesh.errors import MeshError

Folder = Annotated[Path | None, typer.Option("--dir", help="Where this server's identity and settings live.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

P = ParamSpec("P")


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a command so that an error of the mesh is printed as one sentence and ends it with status 1."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except MeshError as problem:
            say(f"rackwright mesh: {problem}", file=sys.stderr)
            raise typer.Exit(1) from problem
        except PermissionError as problem:
            say(f"rackwright mesh: {problem.filename} is not yours to use; do this as root", file=sys.stderr)
            raise typer.Exit(1) from problem

    return wrapped
