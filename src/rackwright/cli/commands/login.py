"""`rackwright login` and `logout`: a token of this computer's own, kept where only its owner can read it."""

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client, failures_end_command
from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.output.passwords import PasswordStdin, read_password
from rackwright.cli.output.terminal import say
from rackwright.cli.profile import DEFAULT_URL, URL, Profile, delete_login, read_login, save_login
from rackwright.client.blocking import ApiClient
from rackwright.client.calls import make_token
from rackwright.client.errors import ApiProblem, NoAnswer
from rackwright.home import default_home
from rackwright.server.running_servers import servers_of_home, servers_of_user
from rackwright.shown_urls import shown_url

LOGIN_SECONDS = 30.0


def login_command(argv: list[str]) -> int:
    """Run `rackwright login`."""
    app = make_app(no_args_is_help=False)
    app.command()(login)
    return int(app(args=argv, prog_name="rackwright login", standalone_mode=False) or 0)


def logout_command(argv: list[str]) -> int:
    """Run `rackwright logout`."""
    app = make_app(no_args_is_help=False)
    app.command()(logout)
    return int(app(args=argv, prog_name="rackwright logout", standalone_mode=False) or 0)


def login(
    url: Annotated[
        str, typer.Argument(help="The server; the one that runs on this host if none is given.", show_default=False)
    ] = "",
    name: Annotated[str, typer.Option(help="Who you are there.")] = "admin",
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust, if the server made its own.")] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Log in once; further commands go to this server as you."""
    server = _choose_server(url.rstrip("/"), ca)
    password = read_password(f"Password of {name} at {shown_url(server.url)}: ", password_stdin)
    file = save_login(replace(server, token=_create_token(server, name, password)))
    say(f"You are {name} at {shown_url(server.url)}. Kept in {file}.")


def _choose_server(url: str, ca: Path | None) -> Profile:
    """Return the server to log in to, with no token yet. The certificate of this host's own server is known."""
    chosen = url or os.environ.get(URL, "").rstrip("/")
    running = [server for server in servers_of_home(default_home()) or servers_of_user() if chosen in ("", server.url)]
    known_ca = running[0].ca if running else None
    server_url = chosen or (running[0].url if running else DEFAULT_URL)
    return Profile(server_url, "", str(ca.absolute()) if ca else known_ca)


def _create_token(server: Profile, name: str, password: str) -> str:
    """Have the server make a token for this computer."""
    token_name = f"command line on {socket.gethostname()}"
    with failures_end_command():
        try:
            with ApiClient(server, LOGIN_SECONDS) as api:
                return api.run(make_token(server.url, name, password, token_name))
        except ApiProblem as problem:
            fail(str(problem), Exit.NOT_ALLOWED)
        except NoAnswer as error:
            fail(str(error), Exit.UNREACHABLE)


def logout() -> None:
    """Forget the login of this computer, and have the server forget its token."""
    profile = read_login()
    if profile is not None:
        client = Client(profile)
        client.delete(f"/tokens/{client.get('/me')['token_id']}", check_unchanged=False)
    say("Logged out." if delete_login() else "You were not logged in.")
