"""`rackwright user`: users, their passwords and grants."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.passwords import PasswordStdin, read_password
from rackwright.cli.output.printing import prints
from rackwright.cli.shared import (
    Deployment,
    Filters,
    Limit,
    SetOptions,
    Sort,
    Yes,
    complete_names,
    parse_values,
    read_list,
)

app = make_app("People.")

COLUMNS = ("name", "full_name", "role", "disabled", "grants")
User = Annotated[str, typer.Argument(help="Name or id of a user.", autocompletion=complete_names("/users"))]


class UserRole(StrEnum):
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    NONE = "none"


class GrantRole(StrEnum):
    OPERATOR = "operator"
    VIEWER = "viewer"


@app.command("list")
@prints(*COLUMNS)
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All users."""
    return read_list("/users", filters, sort, limit)


@app.command("show")
@prints()
def show_one(user: User) -> Any:
    """One user."""
    return Client().get(f"/users/{user}")


@app.command()
@prints()
def create(
    name: str,
    role: UserRole = UserRole.VIEWER,
    full_name: str = "",
    password_stdin: PasswordStdin = False,
) -> Any:
    """A new user. The password is asked for, or read from standard input."""
    body = {
        "name": name,
        "role": role.value,
        "full_name": full_name,
        "password": _read_new_password(name, password_stdin),
    }
    return Client().post("/users", body)


@app.command()
@prints()
def update(user: User, set: SetOptions = None) -> Any:
    """Change a user: --set role=operator --set disabled=true"""
    return Client().merge(f"/users/{user}", parse_values(set))


@app.command()
def delete(user: User, yes: Yes = False) -> None:
    """Remove a user, with all their tokens and sessions."""
    confirm(f"Remove user {user} with all their tokens?", yes)
    Client().delete(f"/users/{user}")


@app.command()
def password(user: User, password_stdin: PasswordStdin = False) -> None:
    """Give a user a new password. All their sessions end."""
    Client().put(
        f"/users/{user}/password", {"password": _read_new_password(user, password_stdin)}, check_unchanged=False
    )


@app.command()
@prints()
def grant(user: User, deployment: Deployment, role: GrantRole) -> Any:
    """Let a user do more in a deployment and everything below it."""
    return Client().put(f"/users/{user}/grants/{deployment}", {"role": role.value}, check_unchanged=False)


@app.command()
def revoke(user: User, deployment: Deployment, yes: Yes = False) -> None:
    """Take a grant back."""
    confirm(f"Take from {user} what was granted in {deployment} and below?", yes)
    Client().delete(f"/users/{user}/grants/{deployment}", check_unchanged=False)


def _read_new_password(name: str, from_stdin: bool) -> str:
    return read_password(f"New password of {name}: ", from_stdin)
