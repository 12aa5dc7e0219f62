"""rackwright noderole"""

from typing import Annotated

import typer

from rackwright.cli.client import Client, show

app = typer.Typer(help="Roles bound to nodes.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

COLUMNS = ("id", "role", "node", "deployment", "state", "cohort", "error")


@app.command("list")
def list_all(deployment: str | None = None, node: str | None = None, json: Json = False) -> None:
    """All noderoles, in the order in which they can run."""
    show(Client().list("/node_roles", deployment=deployment, node=node, sort="cohort"), COLUMNS, json)


@app.command()
def why(id: int, json: Json = False) -> None:
    """Why it waits, down to what can be done about it."""
    chain = Client().call("GET", f"/node_roles/{id}/why")
    show(chain, ("title", "state", "text", "remedy"), json)


@app.command()
def retry(id: int, json: Json = False) -> None:
    """Run what failed once more."""
    show(Client().call("POST", f"/node_roles/{id}/retry"), COLUMNS, json)
