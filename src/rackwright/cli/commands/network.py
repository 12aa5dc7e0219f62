"""`rackwright network`: networks, their ranges, and the addresses given out."""

from ipaddress import ip_address
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, confirm, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import Filters, Limit, Node, SetOptions, Sort, Yes, complete_names, parse_values, read_list

app = make_app("Networks, and who has which address.")

Network = Annotated[str, typer.Argument(help="Name or id of a network.", autocompletion=complete_names("/networks"))]
Ranges = Annotated[
    list[str] | None,
    typer.Option("--range", metavar="NAME:FIRST-LAST[:USE]", help="Addresses to give out; may be repeated."),
]


@app.command("list")
@prints("name", "category", "v4_subnet", "v6_subnet", "vlan", "description", empty="No networks.")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All networks."""
    return read_list("/networks", filters, sort, limit)


@app.command("show")
@prints()
def show_one(network: Network) -> Any:
    """One network, with its ranges and routers."""
    return Client().get(f"/networks/{network}")


@app.command()
@prints()
def create(
    name: str,
    v4: Annotated[str | None, typer.Option(help="As 10.0.0.0/24")] = None,
    v6: Annotated[str | None, typer.Option(help="As fd00::/64")] = None,
    vlan: int | None = None,
    category: str = "general",
    description: str = "",
    ranges: Ranges = None,
    router: Annotated[list[str] | None, typer.Option(help="Address of a router; may be repeated.")] = None,
) -> Any:
    """A new network, with a role `network-NAME` to bind nodes to it."""
    body = {
        "name": name,
        "category": category,
        "description": description,
        "vlan": vlan,
        "v4_subnet": v4,
        "v6_subnet": v6,
        "ranges": [parse_range(text) for text in ranges or []],
        "routers": [{"address": address} for address in router or []],
    }
    return Client().post("/networks", body)


@app.command()
@prints()
def update(network: Network, set: SetOptions = None) -> Any:
    """Change a network: --set vlan=12 --set description="Storage" """
    return Client().merge(f"/networks/{network}", parse_values(set))


@app.command()
def delete(network: Network, yes: Yes = False) -> None:
    """Remove a network nobody uses any more."""
    confirm(f"Remove network {network}?", yes)
    Client().delete(f"/networks/{network}")


@app.command()
@prints("address", "node", "range", empty="No address is given out.")
def allocations(network: Network) -> Any:
    """Who has which address."""
    return Client().pages(f"/networks/{network}/allocations")


@app.command()
@prints()
def allocate(network: Network, node: Node, address: str | None = None) -> Any:
    """Give a node an address: this one, or the next that is free."""
    return Client().post(f"/networks/{network}/allocations", {"node": node, "address": address})


@app.command()
def free(network: Network, address: str, yes: Yes = False) -> None:
    """Take an address back."""
    confirm(f"Take {address} back?", yes)
    Client().delete(f"/networks/{network}/allocations/{address}", check_unchanged=False)


def parse_range(text: str) -> dict[str, Any]:
    """Return the range of addresses that NAME:FIRST-LAST[:USE] stands for; another text ends the command."""
    name, _, remainder = text.partition(":")
    first, dash, last = remainder.partition("-")
    use = ""
    if not _is_address(last):  # the last group of an IPv6 address also follows a colon, and may be letters alone
        last, _, use = last.rpartition(":")
    if not name or not dash or not last:
        fail(f"{text!r} is not of the form NAME:FIRST-LAST, as host:10.0.0.10-10.0.0.99.", Exit.USAGE)
    return {"name": name, "first": first, "last": last} | ({"use": use} if use else {})


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
