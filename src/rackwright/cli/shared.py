"""What many commands have in common: filters, the reading of KEY=VALUE, and the names a shell completes."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.profile import NoServer, current_profile
from rackwright.client.blocking import ApiClient
from rackwright.client.calls import ONCE, PAGE
from rackwright.client.errors import ApiError

Filters = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="NAME=VALUE", help="Only those that fit; may be repeated."),
]
Sort = Annotated[
    str | None, typer.Option("--sort", help="Sort by this; with - in front the last comes first: --sort=-id")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="So many at most.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="The value is JSON, or else plain text; @FILE: from a file."),
]


def listed(path: str, filters: list[str] | None, sort: str | None, limit: int | None, **more: Any) -> list[Any]:
    """A list of the server, with the filters it knows; one it does not know it names the others for."""
    query: dict[str, Any] = {"sort": sort, **more}
    asked: dict[str, list[str]] = {}
    for name, value in pairs(filters or []):
        asked.setdefault(name, []).append(value)
    for name, found in asked.items():
        if name in ("limit", "cursor"):
            fail(f"{name} is no filter; say how many with --limit.", Exit.USAGE)
        if query.get(name) is not None:
            fail(f"{name} is said twice: as --{name.replace('_', '-')} and as --filter {name}=... .", Exit.USAGE)
        query[name] = found
    return Client().pages(path, limit, **query)


def pairs(given: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"{text!r} is not of the form NAME=VALUE.", Exit.USAGE)
        found.append((name, value))
    return found


def values(given: Iterable[str] | None) -> dict[str, Any]:
    """NAME=VALUE, where the value is JSON if it can be read so: `alive=true`, `macs=["..."]`, `description=Top one`.

    A secret is given as `NAME=@FILE`, or `NAME=@-` for standard input, so that it is in no list of processes.
    """
    return {name: _value(text) for name, text in pairs(given or [])}


def _value(text: str) -> Any:
    if text.startswith("@"):
        text = _content(text[1:])
    try:
        return json.loads(text)
    except ValueError:
        return text


def _content(file: str) -> str:
    """What a file holds, less the newline at its end."""
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text()).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"The value in {file} cannot be read: {error}. For text that begins with @, quote it as JSON.", Exit.USAGE)


COMPLETING_SECONDS = 2.0
"""Whoever presses Tab does not wait for longer."""


def names_of(path: str, *fields: str) -> Callable[[str], list[str]]:
    """What a shell offers for an argument: the names there are on the server now; silence if it does not answer."""
    parts = fields or ("name",)

    def complete(incomplete: str) -> list[str]:
        try:
            with ApiClient(current_profile(), COMPLETING_SECONDS, ONCE) as api:
                found = api.pages(path, PAGE, fields=",".join(parts))
        except (NoServer, ApiError):
            return []
        names = [":".join(str(one[part]) for part in parts) for one in found]
        return [name for name in names if name.startswith(incomplete)]

    return complete


Node = Annotated[str, typer.Argument(help="Name or id of a node.", autocompletion=names_of("/nodes"))]
Deployment = Annotated[str, typer.Argument(help="Name or id of a deployment.", autocompletion=names_of("/deployments"))]
Role = Annotated[str, typer.Argument(help="Name of a role.", autocompletion=names_of("/roles"))]


def noderole_names(incomplete: str) -> list[str]:
    names = names_of("/node_roles", "role", "node")("")
    return [name for one in names if (name := one.replace(":", "@", 1)).startswith(incomplete)]


NodeRole = Annotated[str, typer.Argument(help="ROLE@NODE or id of a noderole.", autocompletion=noderole_names)]


def noderole_id(client: Client, key: str) -> int:
    """The id of `ROLE@NODE`."""
    if key.isdigit():
        return int(key)
    role, at, node = key.partition("@")
    if not at:
        fail(f"{key!r} is neither the id of a noderole nor of the form ROLE@NODE.", Exit.USAGE)
    found = client.pages("/node_roles", 1, role=role, node=node)
    if not found:
        fail(f"Role {role!r} is not bound to node {node!r}.", Exit.NOT_FOUND)
    return int(found[0]["id"])
