"""`rackwright token`: tokens for programs."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import Yes

app = make_app("Tokens for programs.")

COLUMNS = ("id", "user", "name", "scope", "deployment", "expires_at", "last_used_at")


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@app.command("list")
@prints(*COLUMNS, empty="No tokens.")
def list_all(user: Annotated[str | None, typer.Option(help="Of this user; yours if none is given.")] = None) -> Any:
    """Your tokens, or another's."""
    return Client().get("/tokens", user=user)["items"]


@app.command()
@prints()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[Scope, typer.Option(help="The most it may do.")] = Scope.READ,
    deployment: Annotated[str | None, typer.Option(help="Only there and below.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="As 2027-01-31T12:00:00Z; never if none is given.")] = None,
    user: Annotated[str | None, typer.Option(help="For this user; for you if none is given.")] = None,
) -> Any:
    """A new token. It is shown this once."""
    body = {"name": name, "scope": scope.value, "deployment": deployment, "expires_at": expires_at, "user": user}
    return Client().post("/tokens", body)


@app.command()
def delete(id: int, yes: Yes = False) -> None:
    """Revoke a token. Whoever uses it is shut out at once."""
    confirm(f"Revoke token {id}?", yes)
    Client().delete(f"/tokens/{id}", check_unchanged=False)
