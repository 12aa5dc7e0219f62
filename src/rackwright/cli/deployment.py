"""rackwright deployment"""

from typing import Annotated, Any

import typer

from rackwright.cli.client import Client, show

app = typer.Typer(help="What people want of their machines.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

COLUMNS = ("name", "state", "held", "noderoles")


@app.command("list")
def list_all(json: Json = False) -> None:
    """All deployments."""
    show(Client().list("/deployments"), COLUMNS, json)


@app.command()
def create(name: str, parent: str | None = None, json: Json = False) -> None:
    """A new deployment, with an open proposal."""
    show(Client().call("POST", "/deployments", {"name": name, "parent": parent}), COLUMNS, json)


@app.command()
def propose(deployment: str, json: Json = False) -> None:
    """Open a copy of what is committed, to edit it."""
    show(Client().call("POST", f"/deployments/{deployment}/propose"), COLUMNS, json)


@app.command()
def plan(deployment: str, json: Json = False) -> None:
    """What a commit would do."""
    _show_plan(Client().call("POST", f"/deployments/{deployment}/plan"), json)


@app.command()
def commit(
    deployment: str,
    digest: Annotated[str | None, typer.Option(help="Only if the plan is still the one with this digest.")] = None,
    json: Json = False,
) -> None:
    """Make the proposal what is wanted from now on."""
    _show_plan(Client().call("POST", f"/deployments/{deployment}/commit", {"digest": digest}), json)


def _show_plan(plan: dict[str, Any], json: bool) -> None:
    if json:
        show(plan, (), True)
        return
    lines = [{"what": what, **line} for what in ("created", "rerun", "held_back", "removed") for line in plan[what]]
    show(lines, ("what", "role", "node", "because"), False)
    for what in ("moved", "wiped"):
        if plan[what]:
            print(f"{what}: {', '.join(plan[what])}")
    print(f"digest: {plan['digest']}")
