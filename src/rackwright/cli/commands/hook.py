"""`rackwright hook`: calls of roles' hooks that fail, and trying them again."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.printing import prints

app = make_app("Calls of roles' hooks that fail.")


@app.command("list")
@prints("id", "handler", "hook", "attempts", "error", empty="No hook fails.")
def list_all() -> Any:
    """Hooks that fail, with their errors. They are tried again by themselves."""
    return Client().pages("/hook_calls")


@app.command()
@prints()
def retry(id: Annotated[int, typer.Argument(help="As `hook list` shows it.")]) -> Any:
    """Call a failing hook again now."""
    return Client().post(f"/hook_calls/{id}/retry")
