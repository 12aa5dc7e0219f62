"""`rackwright noderole`: roles bound to nodes: their data, why they wait, retries and logs."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, confirm, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import (
    Filters,
    Limit,
    NodeRole,
    SetOptions,
    Sort,
    Yes,
    find_noderole_id,
    parse_values,
    read_list,
)

app = make_app("Roles bound to nodes.")

COLUMNS = ("id", "role", "node", "deployment", "state", "cohort", "error")


@app.command("list")
@prints(*COLUMNS, empty="No noderole fits.")
def list_all(
    filters: Filters = None,
    sort: Sort = "cohort",
    limit: Limit = None,
    deployment: str | None = None,
    node: str | None = None,
) -> list[Any]:
    """All noderoles, in the order in which they can run, or those that fit: -f state=error"""
    return read_list("/node_roles", filters, sort, limit, deployment=deployment, node=node)


@app.command("show")
@prints()
def show_one(noderole: NodeRole) -> Any:
    """One noderole, with its data and neighbours."""
    client = Client()
    return client.get(f"/node_roles/{find_noderole_id(client, noderole)}")


@app.command()
@prints()
def update(noderole: NodeRole, set: SetOptions = None) -> Any:
    """Set data of yours in an open proposal: --set crowbar='{"target_os": "debian-12"}'"""
    client = Client()
    return client.merge(f"/node_roles/{find_noderole_id(client, noderole)}", {"user_data": parse_values(set)})


@app.command()
def delete(noderole: NodeRole, yes: Yes = False) -> None:
    """Take a role off its node, in the deployment's proposal."""
    confirm(f"Unbind noderole {noderole} and what stands on it?", yes)
    client = Client()
    client.delete(f"/node_roles/{find_noderole_id(client, noderole)}")


@app.command()
@prints("title", "state", "text", "remedy")
def why(noderole: NodeRole) -> Any:
    """Why it waits or failed, down to what a person can do about it."""
    client = Client()
    return client.get(f"/node_roles/{find_noderole_id(client, noderole)}/why")


@app.command()
@prints(*COLUMNS)
def retry(
    noderoles: Annotated[list[str] | None, typer.Argument(help="ROLE@NODE or ids of noderoles.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are in ERROR.")] = False,
) -> Any:
    """Run what failed once more."""
    client = Client()
    ids = [find_noderole_id(client, key) for key in noderoles or []]
    if every:
        ids += [noderole["id"] for noderole in client.pages("/node_roles", state="error")]
    if not ids:
        fail("Say which noderoles: ROLE@NODE, or --all for everything in ERROR.", Exit.USAGE)
    return [client.post(f"/node_roles/{id}/retry") for id in ids]


@app.command()
def log(
    noderole: NodeRole,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on while it runs.")] = False,
) -> None:
    """What its last run printed."""
    from rackwright.cli.commands.run import print_log

    client = Client()
    id = find_noderole_id(client, noderole)
    runs = client.pages("/runs", 1, node_role_id=id, sort="-id")
    if not runs:
        fail(f"Noderole {noderole} has not run yet. See: rackwright noderole why {noderole}", Exit.NOT_FOUND)
    print_log(client, runs[0]["id"], follow)
