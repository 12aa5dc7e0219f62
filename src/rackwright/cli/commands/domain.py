"""`rackwright domain`: the domains under which nodes are served by DNS."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import Filters, Limit, Sort, Yes, complete_names, read_list

app = make_app("Domains: under which names nodes are served by DNS.")

Domain = Annotated[
    str, typer.Argument(help="Name or id of a domain.", autocompletion=complete_names("/domains", "name"))
]


@app.command("list")
@prints("name", "deployment", empty="No domain fits.")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All domains, or those that fit: -f deployment=web"""
    return read_list("/domains", filters, sort, limit)


@app.command("show")
@prints()
def show_one(domain: Domain) -> Any:
    """One domain."""
    return Client().get(f"/domains/{domain}")


@app.command()
@prints()
def create(
    name: str,
    deployment: Annotated[
        str | None, typer.Option(help="Whose nodes, with those below it; all nodes if none is given.")
    ] = None,
) -> Any:
    """Serve the names of nodes below a domain: domain create rack.example --deployment web"""
    return Client().post("/domains", {"name": name, "deployment": deployment})


@app.command()
def delete(domain: Domain, yes: Yes = False) -> None:
    """Serve a domain no more; nodes keep their names."""
    confirm(f"Serve no names of {domain} any more?", yes)
    Client().delete(f"/domains/{domain}")
