"""rackwright login and logout: a token of this computer's own, kept where only its owner can read it."""

import os
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import PREFIX, Client, reason
from rackwright.cli.exits import Exit, fail
from rackwright.cli.passwords import PasswordStdin, read_password
from rackwright.cli.profile import DEFAULT_URL, Profile, current_profile, forget, keep
from rackwright.cli.terminal import say


def login_command(argv: list[str]) -> int:
    app = make_app(no_args_is_help=False)
    app.command()(login)
    return int(app(args=argv, prog_name="rackwright login", standalone_mode=False) or 0)


def logout_command(argv: list[str]) -> int:
    app = make_app(no_args_is_help=False)
    app.command()(logout)
    return int(app(args=argv, prog_name="rackwright logout", standalone_mode=False) or 0)


def login(
    url: Annotated[str, typer.Argument(help="The server.")] = DEFAULT_URL,
    name: Annotated[str, typer.Option(help="Who you are there.")] = "admin",
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust, if the server made its own.")] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Log in once; further commands go to this server as you."""
    password = read_password(f"Password of {name}: ", password_stdin)
    token = _new_token(url.rstrip("/"), name, password, ca)
    file = keep(Profile(url.rstrip("/"), token, str(ca.absolute()) if ca else None))
    say(f"You are {name} at {url}. Kept in {file}.")


def _new_token(url: str, name: str, password: str, ca: Path | None) -> str:
    import ssl

    import httpx

    verify: Any = ssl.create_default_context(cafile=str(ca)) if ca else True
    with httpx.Client(base_url=f"{url}{PREFIX}", trust_env=False, timeout=30, verify=verify) as http:
        try:
            entered = http.post("/sessions", json={"name": name, "password": password})
            if not entered.is_success:
                fail(reason(entered), Exit.NOT_ALLOWED)
            headers = {"X-CSRF-Token": entered.json()["csrf"], "Origin": url}
            named = {"name": f"command line on {socket.gethostname()}", "scope": "admin"}
            made = http.post("/tokens", json=named, headers=headers)
            if not made.is_success:
                fail(reason(made), Exit.NOT_ALLOWED)
            http.delete("/sessions/current", headers=headers)
        except httpx.TransportError as error:
            fail(f"The server at {url} does not answer ({error}).", Exit.UNREACHABLE)
    return str(made.json()["token"])


def logout() -> None:
    """Forget the login of this computer, and have the server forget its token."""
    profile = current_profile({key: value for key, value in os.environ.items() if key != "RACKWRIGHT_TOKEN"})
    if profile is not None and profile.source.endswith("login.json"):
        client = Client(profile)
        client.delete(f"/tokens/{client.get('/me')['token_id']}", tagged=False)
    say("Logged out." if forget() else "You were not logged in.")
