"""`rackwright group`: groups of nodes."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import Filters, Limit, Node, SetOptions, Sort, Yes, complete_names, parse_values, read_list

app = make_app("Nodes that belong together: a rack, a team.")

Group = Annotated[
    str,
    typer.Argument(
        help="CATEGORY:NAME or id of a group.", autocompletion=complete_names("/groups", "category", "name")
    ),
]


@app.command("list")
@prints("category", "name", "nodes", "description", empty="No group fits.")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All groups, or those that fit: -f category=rack"""
    return read_list("/groups", filters, sort, limit)


@app.command("show")
@prints()
def show_one(group: Group) -> Any:
    """One group."""
    return Client().get(f"/groups/{group}")


@app.command()
@prints()
def create(category: str, name: str, description: str = "") -> Any:
    """A new group: group create rack r1"""
    return Client().post("/groups", {"category": category, "name": name, "description": description})


@app.command()
@prints()
def update(group: Group, set: SetOptions = None) -> Any:
    """Change a group: --set description="By the door" """
    return Client().merge(f"/groups/{group}", parse_values(set))


@app.command()
def delete(group: Group, yes: Yes = False) -> None:
    """Remove a group; its nodes stay."""
    confirm(f"Remove group {group}?", yes)
    Client().delete(f"/groups/{group}")


@app.command()
@prints()
def add(group: Group, node: Node) -> Any:
    """Put a node into a group."""
    return Client().put(f"/groups/{group}/nodes/{node}", None, check_unchanged=False)


@app.command()
@prints()
def remove(group: Group, node: Node, yes: Yes = False) -> Any:
    """Take a node out of a group."""
    confirm(f"Take {node} out of group {group}?", yes)
    return Client().delete(f"/groups/{group}/nodes/{node}", check_unchanged=False)
