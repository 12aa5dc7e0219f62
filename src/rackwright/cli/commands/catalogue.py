"""`rackwright role`, `jig`, `attrib` and `hammer`: the catalogue that imported barclamps make."""

from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, confirm, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.run_again import PlanOption, confirm_reruns, print_affected, read_affected
from rackwright.cli.shared import (
    Filters,
    Limit,
    Role,
    Sort,
    Yes,
    complete_names,
    find_noderole_id,
    parse_value,
    read_list,
)

role = make_app("What can be bound to a node.")
jig = make_app("What does the work.")
attrib = make_app("Values roles and nodes have.")
hammer = make_app("Ways to reach a machine outside the graph.")

Jig = Annotated[str, typer.Argument(help="Name of a jig.", autocompletion=complete_names("/jigs"))]
Attrib = Annotated[str, typer.Argument(help="Name of an attrib.", autocompletion=complete_names("/attribs"))]
Hammer = Annotated[str, typer.Argument(help="Name of a hammer.", autocompletion=complete_names("/hammers"))]


@role.command("list")
@prints("name", "barclamp", "jig", "flags", "requires")
def list_roles(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All roles, or those that fit: -f flag=milestone"""
    return read_list("/roles", filters, sort, limit)


@role.command("show")
@prints()
def show_role(name: Role) -> Any:
    """One role."""
    return Client().get(f"/roles/{name}")


@jig.command("list")
@prints("name", "kind", "barclamp", "active", "client_role")
def list_jigs(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All jigs."""
    return read_list("/jigs", filters, sort, limit)


@jig.command("show")
@prints()
def show_jig(name: Jig) -> Any:
    """One jig."""
    return Client().get(f"/jigs/{name}")


@jig.command()
@prints()
def activate(name: Jig) -> Any:
    """Let a jig take work."""
    return Client().post(f"/jigs/{name}/activate")


@jig.command()
@prints()
def deactivate(name: Jig, yes: Yes = False) -> Any:
    """Have a jig take no more work; what it does goes on."""
    confirm(f"Have jig {name} take no more work?", yes)
    return Client().post(f"/jigs/{name}/deactivate")


@hammer.command("list")
@prints("name", "kind", "barclamp", "priority", "description")
def list_hammers(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All hammers."""
    return read_list("/hammers", filters, sort, limit)


@hammer.command("show")
@prints()
def show_hammer(name: Hammer) -> Any:
    """One hammer."""
    return Client().get(f"/hammers/{name}")


@attrib.command("list")
@prints("name", "role", "map", "default", "description")
def list_attribs(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All attribs, or those that fit."""
    return read_list("/attribs", filters, sort, limit)


@attrib.command("show")
@prints()
def show_attrib(name: Attrib) -> Any:
    """One attrib, with the schema of its values."""
    return Client().get(f"/attribs/{name}")


Of = Annotated[str, typer.Argument(help="node/NAME, noderole/ROLE@NODE or deployment/NAME.")]


@attrib.command()
@prints("name", "value", "source", "role")
def values(of: Of) -> Any:
    """The values something has, and where each comes from."""
    return Client().pages(f"{_owner_path(of)}/attribs")


@attrib.command("get")
@prints()
def get_value(of: Of, name: Attrib) -> Any:
    """One value, with what each layer says."""
    return Client().get(f"{_owner_path(of)}/attribs/{name}")


@attrib.command("set")
@prints()
def set_value(
    of: Of,
    name: Attrib,
    value: Annotated[str, typer.Argument(help="JSON, or else plain text.")],
    plan: PlanOption = False,
    yes: Yes = False,
) -> Any:
    """Set a value; it is checked against its schema. In the system deployment what runs again is said first."""
    _confirm_change(of, name, plan, yes)
    return Client().put(f"{_owner_path(of)}/attribs/{name}", {"value": parse_value(value)})


@attrib.command("unset")
@prints()
def unset_value(of: Of, name: Attrib, plan: PlanOption = False, yes: Yes = False) -> Any:
    """Take a value of yours back. Of a deployment, what runs again is said with --plan."""
    if not _confirm_change(of, name, plan, yes):
        confirm(f"Take the value of {name} of {of} back?", yes)
    return Client().delete(f"{_owner_path(of)}/attribs/{name}")


def _confirm_change(of: str, name: str, plan: bool, yes: bool) -> bool:
    """Ask before a change of a deployment's value makes noderoles run again at once; return whether it asked.

    With --plan, print what would run again and end the command.
    """
    if not of.startswith("deployment/"):
        if plan:
            fail("--plan is for values of a deployment: deployment/NAME.", Exit.USAGE)
        return False
    client = Client()
    role = client.get(f"{_owner_path(of)}/attribs/{name}")["role"]
    deployment = of.removeprefix("deployment/")
    if plan:
        print_affected(read_affected(client, deployment, role))
        raise typer.Exit
    return confirm_reruns(client, deployment, role, yes)


_OWNER_COLLECTIONS = {"node": "nodes", "noderole": "node_roles", "deployment": "deployments"}


def _owner_path(of: str) -> str:
    """Return the path in the API of the node, noderole or deployment that has values."""
    kind, slash, name = of.partition("/")
    if kind not in _OWNER_COLLECTIONS or not slash or not name:
        fail(f"{of!r} is none of node/NAME, noderole/ROLE@NODE and deployment/NAME.", Exit.USAGE)
    return f"/{_OWNER_COLLECTIONS[kind]}/{find_noderole_id(Client(), name) if kind == 'noderole' else name}"
