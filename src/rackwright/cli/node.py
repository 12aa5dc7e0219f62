"""rackwright node"""

from typing import Annotated

import typer

from rackwright.cli.client import Client, show

app = typer.Typer(help="Machines.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

COLUMNS = ("name", "state", "alive", "available", "deployment", "bootenv")


@app.command("list")
def list_all(json: Json = False) -> None:
    """All nodes."""
    show(Client().list("/nodes"), COLUMNS, json)


@app.command("show")
def show_one(node: str, json: Json = False) -> None:
    """One node."""
    show(Client().call("GET", f"/nodes/{node}"), COLUMNS, json)


@app.command()
def create(
    name: str,
    mac: Annotated[list[str] | None, typer.Option(help="A MAC address of it; may be repeated.")] = None,
    alive: Annotated[bool, typer.Option(help="It is up already.")] = False,
    deployment: str | None = None,
    json: Json = False,
) -> None:
    """Add a machine. Its discovery roles are bound at once."""
    body = {"name": name, "macs": mac or [], "alive": alive, "deployment": deployment}
    show(Client().call("POST", "/nodes", body), COLUMNS, json)


@app.command()
def bind(node: str, role: str, deployment: str, dry_run: bool = False, json: Json = False) -> None:
    """Bind a role to a node in a deployment's proposal, with all that the role needs."""
    body = {"node": node, "role": role, "deployment": deployment}
    bound = Client().call("POST", "/node_roles", body, dry_run=dry_run or None)
    show(bound if json else bound["created"], ("role", "node", "cohort"), json)


@app.command()
def delete(node: str) -> None:
    """Remove a machine, with its noderoles."""
    Client().call("DELETE", f"/nodes/{node}")
