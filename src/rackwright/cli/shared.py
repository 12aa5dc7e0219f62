"""What many commands share: options and arguments, the parsing of NAME=VALUE, and the names that a shell completes."""

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
SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="The value is JSON, or else plain text; @FILE: from a file."),
]


def read_list(path: str, filters: list[str] | None, sort: str | None, limit: int | None, **more: Any) -> list[Any]:
    """Return a list of the server, filtered and sorted.

    The server refuses a filter that it does not know, and names those that it knows.
    """
    query: dict[str, Any] = {"sort": sort, **more}
    values_by_filter: dict[str, list[str]] = {}
    for name, value in parse_pairs(filters or []):
        values_by_filter.setdefault(name, []).append(value)
    for name, values in values_by_filter.items():
        if name in ("limit", "cursor"):
            fail(f"{name} is no filter; say how many with --limit.", Exit.USAGE)
        if query.get(name) is not None:
            fail(f"{name} is said twice: as --{name.replace('_', '-')} and as --filter {name}=... .", Exit.USAGE)
        query[name] = values
    return Client().pages(path, limit, **query)


def parse_pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names and values of texts NAME=VALUE; another text ends the command."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"{text!r} is not of the form NAME=VALUE.", Exit.USAGE)
        pairs.append((name, value))
    return pairs


def parse_values(texts: Iterable[str] | None) -> dict[str, Any]:
    """Return the values of texts NAME=VALUE by name.

    A value is JSON if it can be read so: `alive=true`, `macs=["..."]`, `description=Top one`.

    A secret is given as `NAME=@FILE`, or `NAME=@-` for standard input, so that it is in no list of processes.
    """
    return {name: parse_value(text) for name, text in parse_pairs(texts or [])}


def parse_value(text: str) -> Any:
    """Return a value that is JSON or else plain text; @FILE: the content of a file, @-: of standard input."""
    if text.startswith("@"):
        text = _read_content(text[1:])
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_content(file: str) -> str:
    """Return the content of a file, or for `-` of standard input, without the newline at its end."""
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text()).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"The value in {file} cannot be read: {error}. For text that begins with @, quote it as JSON.", Exit.USAGE)


COMPLETING_SECONDS = 2.0
"""How long a person who presses Tab may have to wait."""


def complete_names(path: str, *fields: str) -> Callable[[str], list[str]]:
    """Return a completion for an argument: the names that the server has now, or none if it does not answer."""
    name_fields = fields or ("name",)

    def complete(incomplete: str) -> list[str]:
        try:
            with ApiClient(current_profile(), COMPLETING_SECONDS, ONCE) as api:
                items = api.pages(path, PAGE, fields=",".join(name_fields))
        except (NoServer, ApiError):
            return []
        names = [":".join(str(item[field]) for field in name_fields) for item in items]
        return [name for name in names if name.startswith(incomplete)]

    return complete


Node = Annotated[str, typer.Argument(help="Name or id of a node.", autocompletion=complete_names("/nodes"))]
Deployment = Annotated[
    str, typer.Argument(help="Name or id of a deployment.", autocompletion=complete_names("/deployments"))
]
Role = Annotated[str, typer.Argument(help="Name of a role.", autocompletion=complete_names("/roles"))]


def complete_noderoles(incomplete: str) -> list[str]:
    """Return the noderoles that begin with the text typed so far, as ROLE@NODE."""
    names = complete_names("/node_roles", "role", "node")("")
    keys = [name.replace(":", "@", 1) for name in names]
    return [key for key in keys if key.startswith(incomplete)]


NodeRole = Annotated[str, typer.Argument(help="ROLE@NODE or id of a noderole.", autocompletion=complete_noderoles)]


def find_noderole_id(client: Client, key: str) -> int:
    """Return the id of the noderole `ROLE@NODE`; a key that is an id already is returned as it is."""
    if key.isdigit():
        return int(key)
    role, at, node = key.partition("@")
    if not at:
        fail(f"{key!r} is neither the id of a noderole nor of the form ROLE@NODE.", Exit.USAGE)
    noderoles = client.pages("/node_roles", 1, role=role, node=node)
    if not noderoles:
        fail(f"Role {role!r} is not bound to node {node!r}.", Exit.NOT_FOUND)
    return int(noderoles[0]["id"])
