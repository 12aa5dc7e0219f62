"""`rackwright mesh`: make a cluster of servers, let servers in and out, and see which are alive.

The commands speak to this server's agent over its control socket. Tables are for people, `--json` for scripts, and an
error is one sentence that says what to do. The verbs of the demo are in `mesh_demo.py`.
"""

import getpass
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.mesh import mesh_config, mesh_datastore, mesh_demo, mesh_runs
from rackwright.cli.mesh.mesh_options import AsJson, Folder, Yes, plain_errors
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import open_console, print_table, say
from rackwright.mesh import control
from rackwright.mesh.address import parse_address
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.folder import FOLDER, default_folder

if TYPE_CHECKING:
    from rich.table import Table

app = make_app("A cluster of servers: make it, join it, look at it.")
app.add_typer(mesh_demo.app, name="demo")
mesh_datastore.add_verbs(app)
mesh_runs.add_verbs(app)
mesh_config.add_verbs(app)

TOKEN_VARIABLE = "RACKWRIGHT_MESH_TOKEN"  # noqa: S105 - says where the secret is, and is none
MAX_TOKEN = 16 * 1024
"""The most characters that are read of a token."""
TOKEN_SHOWN = (
    "a token on the command line can be read by everybody on this server, in the list of processes; make a new one and"
    f" give it with --token-file FILE, with --token-file - when asked for it, or in {TOKEN_VARIABLE}"
)

Name = Annotated[str | None, typer.Option(help="This server's name in the cluster; its host name if not given.")]
Bind = Annotated[str | None, typer.Option(help="Address to listen on; the advertised one if not given.")]
Advertise = Annotated[str | None, typer.Option(help="Address at which the others reach this server.")]


@app.command()
@plain_errors
def init(
    advertise: Annotated[str, typer.Option(help="Address at which the others reach this server, HOST or HOST:PORT.")],
    name: Name = None,
    cluster: Annotated[str, typer.Option(help="A name for the cluster, shown in its CA.")] = "mesh",
    bind: Bind = None,
    passphrase_file: Annotated[Path | None, typer.Option(help="Where the CA key's passphrase is kept.")] = None,
    certificate_hours: Annotated[
        float | None, typer.Option(help="How long a certificate lives; a week if not given.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Make a new cluster, with this server as its first member and keeper of its CA."""
    from datetime import timedelta

    from rackwright.mesh.identity.authority import LIFE
    from rackwright.mesh.identity.server_identity import fingerprint
    from rackwright.mesh.joining.founding import found_cluster

    home = folder or default_folder()
    advertised = parse_address(advertise)
    life = LIFE if certificate_hours is None else timedelta(hours=certificate_hours)
    identity = found_cluster(
        home, name or _host_name(), cluster, parse_address(bind) if bind else None, advertised, passphrase_file, life
    )
    say(f"Made the cluster {cluster!r} with its first server {identity.name}.")
    say("Start its agent:      systemctl enable --now rackwright-agent   (or: rackwright agent run)")
    say("Let a server in:      rackwright mesh invite NAME ADDRESS --host-key FINGERPRINT")
    ca_fingerprint = fingerprint(identity.ca)
    say(f"and on that server:   rackwright mesh join {advertised} --ca-fingerprint {ca_fingerprint} --name NAME")


@app.command()
@plain_errors
def invite(
    name: Annotated[str, typer.Argument(help="The name the new server is to have.")],
    address: Annotated[str, typer.Argument(help="Its IP address: the only one that is ever dialled for it.")],
    host_key: Annotated[str, typer.Option(help="Fingerprint of its SSH host key, SHA256:...")],
    port: Annotated[int, typer.Option(help="Its SSH port.")] = 22,
    user: Annotated[str, typer.Option(help="Whom to log in as there.")] = "root",
    remote_folder: Annotated[str, typer.Option("--folder", help="Its mesh folder there.")] = str(FOLDER),
    hours: Annotated[float, typer.Option(help="How long the invite holds.")] = 24.0,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Invite a server: the cluster will visit it over SSH when it asks to join."""
    invited = control.ask(
        folder or default_folder(),
        "invite",
        name=name,
        address=address,
        host_key=host_key,
        port=port,
        user=user,
        folder=remote_folder,
        seconds=int(hours * 3600),
    )
    if as_json:
        say(json.dumps(invited))
        return
    say(f"Invited {name} at {address}. The cluster must be able to log in there as {user}; if it cannot yet, add to")
    say(f"its authorized_keys:  {invited['authorized_key']}")
    say(f"Then on {name}:  rackwright mesh join {invited['address']} --ca-fingerprint {invited['ca']} --name {name}")


@app.command()
@plain_errors
def token(
    name: Annotated[str, typer.Argument(help="The name the new server is to have.")],
    address: Annotated[
        str, typer.Option(help="The IP address it will have; if not given, it must come from that address itself.")
    ] = "",
    minutes: Annotated[float, typer.Option(help="How long the token lives; 60 at most.")] = 10.0,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Make a one-time token for a server that cannot be visited over SSH. Carry it there as you would a password."""
    created = control.ask(folder or default_folder(), "token", name=name, address=address, seconds=int(minutes * 60))
    if as_json:
        say(json.dumps(created))
        return
    say(f"On {name}, within {minutes:g} minutes, once:  rackwright mesh join --token-file -")
    say("and give it this token:")
    say(created["token"])


@app.command("join")
@plain_errors
def join_command(
    address: Annotated[str | None, typer.Argument(help="Any member's address.")] = None,
    ca_fingerprint: Annotated[
        str | None, typer.Option(help="The cluster's CA, SHA256:..., from the join line.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with a token instead of an invite; - to be asked for it. Or set {TOKEN_VARIABLE}."),
    ] = None,
    shown_token: Annotated[str | None, typer.Option("--token", hidden=True)] = None,
    name: Name = None,
    bind: Bind = None,
    advertise: Advertise = None,
    again: Annotated[bool, typer.Option("--again", help="Take a new identity in place of the old one.")] = False,
    folder: Folder = None,
) -> None:
    """Join a cluster that has invited this server, or given it a token."""
    import asyncio

    from rackwright.mesh.joining.founding import refuse_if_member
    from rackwright.mesh.joining.join import JoinOptions, join, read_token

    home = folder or default_folder()
    refuse_if_member(home, again=again)
    listen = parse_address(bind) if bind else None
    advertised = parse_address(advertise) if advertise else None
    if shown_token is not None:
        raise BadRequest(TOKEN_SHOWN)
    one_time_token = _read_one_time_token(token_file, use_variable=not address)
    if one_time_token:
        token = read_token(one_time_token)
        options = JoinOptions(token.name, token.address, token.ca, listen, advertised, token)
    elif address and ca_fingerprint:
        options = JoinOptions(name or _host_name(), parse_address(address), ca_fingerprint, listen, advertised)
    else:
        raise BadRequest("say where to and whom to trust: a member's ADDRESS and --ca-fingerprint, or --token-file")
    identity = asyncio.run(join(home, options))
    say(f"This server is {identity.name} now. Start its agent: systemctl enable --now rackwright-agent")


def _read_one_time_token(file: Path | None, *, use_variable: bool) -> str:
    """Return the token from where others on this server cannot see it; empty if there is none.

    Without a file it is taken from the environment, if `use_variable` is set.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "") if use_variable else ""
    if str(file) == "-":
        return getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline(MAX_TOKEN)
    try:
        with file.open() as opened:
            return opened.read(MAX_TOKEN)
    except (OSError, ValueError) as problem:
        raise BadRequest(f"the token in {file} cannot be read: {problem}") from problem


@app.command()
@plain_errors
def members(
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking, and show changes as they come.")] = False,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Who is in the cluster, and how each of them is."""
    from rackwright.cli.mesh.mesh_tables import members_table

    home = folder or default_folder()
    if watch:
        _watch_members(home, as_json)
    else:
        _print_answer(control.ask(home, "members"), as_json, lambda answer: members_table(answer["members"]))


@app.command()
@plain_errors
def status(as_json: AsJson = False, folder: Folder = None) -> None:
    """This server's view: its cluster, its certificate, and the software on every server."""
    from rackwright.cli.mesh.mesh_tables import status_table

    home = folder or default_folder()
    status = control.ask(home, "status") | {"servers": control.ask(home, "members")["members"]}
    _print_answer(status, as_json, status_table)


@app.command()
@plain_errors
def remove(
    name: Annotated[str, typer.Argument(help="Whom to shut out.")], folder: Folder = None, yes: Yes = False
) -> None:
    """Shut a server out: its certificate is revoked, and every member cuts its connections."""
    confirm(f"Shut {name} out of the cluster?", yes)
    control.ask(folder or default_folder(), "remove", name=name)
    say(f"Removed {name}. It can come back only by a new invite or token.")


@app.command()
@plain_errors
def leave(folder: Folder = None, yes: Yes = False) -> None:
    """Leave the cluster and end this server's agent. Starting the agent again brings it back."""
    confirm("Leave the cluster and end the agent of this server?", yes)
    control.ask(folder or default_folder(), "leave")
    say("Leaving. Start the agent again to come back; to be out for good, have a member remove this server.")


@app.command()
@plain_errors
def ssh_key(folder: Folder = None) -> None:
    """The line that lets the cluster log in at an invited server, for its authorized_keys."""
    from rackwright.mesh.joining.handover import ensure_key

    path = (folder or default_folder()) / "ssh_key"
    if not path.exists():
        raise BadRequest("this server does not hold the cluster's CA, so it does not visit servers")
    say(ensure_key(path))


def _print_answer(answer: dict[str, Any], as_json: bool, make_table: "Callable[[dict[str, Any]], Table]") -> None:
    """Print an answer of the agent, as JSON or as a table."""
    if as_json:
        say(json.dumps(answer))
        return

    print_table(make_table(answer))


def _watch_members(home: Path, as_json: bool) -> None:
    """Show the members as they change, until Ctrl-C."""
    try:
        if as_json:
            for answer in control.listen(home, "watch"):
                say(json.dumps(answer), flush=True)
            return
        from rich.live import Live

        from rackwright.cli.mesh.mesh_tables import members_table

        with Live(console=open_console(), refresh_per_second=8) as live:
            for answer in control.listen(home, "watch"):
                live.update(members_table(answer["members"]))
    except KeyboardInterrupt:
        return


def _host_name() -> str:
    return socket.gethostname().partition(".")[0].lower()
