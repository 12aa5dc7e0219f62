"""`rackwright node`: machines: adding, accepting, binding roles, power, BMC and host keys."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.disk_lines import with_hardware
from rackwright.cli.output.exits import Exit, confirm, fail, require_person
from rackwright.cli.output.lost_data import name_lost_data
from rackwright.cli.output.passwords import PasswordStdin, read_password
from rackwright.cli.output.plan_view import print_installs, show_reinstall
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say
from rackwright.cli.shared import Deployment, Filters, Limit, Node, Role, SetOptions, Sort, Yes, parse_values, read_list
from rackwright.hammers.registry import bmc_kinds

app = make_app("Machines.")

BMC_PASSWORD = "RACKWRIGHT_BMC_PASSWORD"  # noqa: S105  # says where the secret is, and is none

COLUMNS = ("name", "state", "alive", "available", "deployment", "bootenv")


class PowerAction(StrEnum):
    STATUS = "status"
    ON = "on"
    OFF = "off"
    RESET = "reset"


BMC_KINDS = bmc_kinds()


def _check_bmc_kind(kind: str) -> str:
    if kind and kind not in BMC_KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(map(repr, BMC_KINDS))}.")
    return kind


BmcKind = Annotated[
    str,
    typer.Option(
        metavar=f"<{'|'.join(BMC_KINDS)}>",
        callback=_check_bmc_kind,
        autocompletion=lambda: list(BMC_KINDS),
        help=f"What it speaks; {BMC_KINDS[0]}, or what the machine says if its address is taken from there.",
    ),
]


@app.command("list")
@prints(*COLUMNS, empty="No node fits.")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All nodes, or those that fit: -f state=error -f deployment=web"""
    return read_list("/nodes", filters, sort, limit)


@app.command("show")
@prints(for_people=with_hardware)
def show_one(node: Node) -> Any:
    """One node, with all that is known of it."""
    return Client().get(f"/nodes/{node}")


@app.command()
@prints()
def create(
    name: str,
    mac: Annotated[list[str] | None, typer.Option(help="A MAC address of it; may be repeated.")] = None,
    uuid: Annotated[str | None, typer.Option(help="Its system UUID.")] = None,
    description: str = "",
    alive: Annotated[bool, typer.Option(help="It is up already.")] = False,
    deployment: Annotated[str | None, typer.Option(help="Where it belongs; `system` if none is given.")] = None,
    address: Annotated[str | None, typer.Option(help="Where a machine is that runs already.")] = None,
    ssh_user: Annotated[str | None, typer.Option(help="The user the server logs in as; root if none.")] = None,
    ssh_port: Annotated[int | None, typer.Option(help="The port of its SSH server; 22 if none.")] = None,
    host_key: Annotated[Path | None, typer.Option(help="The file of its host key, or -.", allow_dash=True)] = None,
    trust_on_first_use: Annotated[
        bool, typer.Option(help="Trust whichever host key is shown there first; for administrators.")
    ] = False,
) -> Any:
    """Add a machine. Its discovery roles are bound at once. With --address it is one that runs already: let the server
    in there first (rackwright key show). Without --host-key you are asked about the host key that it shows."""
    body = {"name": name, "macs": mac or [], "alive": alive, "deployment": deployment, "description": description}
    ssh_options = {"address": address, "ssh_user": ssh_user, "ssh_port": ssh_port}
    body |= {option: value for option, value in ssh_options.items() if value is not None}
    if host_key is not None:
        body["host_key"] = _read_key(host_key)
    if trust_on_first_use:
        body["trust_on_first_use"] = True
    client = Client()
    created = client.post("/nodes", {**body, "uuid": uuid})
    if address is None:
        return created
    _reach_first_time(client, created["name"])
    return client.get(f"/nodes/{created['name']}")


def _reach_first_time(client: Client, node: str) -> None:
    """Have the server look at a machine that runs already, and ask about a host key that nobody has confirmed."""
    reached = client.post(f"/nodes/{node}/reach")
    offered = reached["offered_host_key"]
    if offered is not None and reached["host_key"] is None and sys.stdin.isatty():
        confirm(
            f"{node} was added, and shows host key {offered}. Nobody has said yet that this is its own. Compare it "
            "with what `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` says there. Is it the same?",
            yes=False,
        )
        client.put(f"/nodes/{node}/host_key", {"fingerprint": offered}, check_unchanged=False)
        reached = client.post(f"/nodes/{node}/reach")
    if not reached["reached"]:
        say(f"{node} was added, but is not reached yet. {reached['reason']}", file=sys.stderr)


@app.command()
@prints()
def reach(node: Node) -> Any:
    """Have the server look at a machine now: is it up, does it let the server in, which host key does it show?"""
    return Client().post(f"/nodes/{node}/reach")


@app.command()
@prints()
def update(node: Node, set: SetOptions = None) -> Any:
    """Change a node: --set description="Third from the top" --set stay_on=true"""
    return Client().merge(f"/nodes/{node}", parse_values(set))


@app.command()
@prints()
def rename(node: Node, name: Annotated[str, typer.Argument(help="Its new name, a full domain name.")]) -> Any:
    """Give a machine another name; DNS and all else that has its name follows."""
    return Client().merge(f"/nodes/{node}", {"name": name})


@app.command()
def delete(node: Node, yes: Yes = False) -> None:
    """Remove a machine, with its noderoles."""
    confirm(f"Remove node {node} with everything bound to it?", yes)
    Client().delete(f"/nodes/{node}")


@app.command()
@prints("role", "node", "cohort", empty="All of it was bound already.")
def bind(
    node: Node,
    role: Role,
    deployment: Deployment,
    dry_run: Annotated[bool, typer.Option(help="Only say what it would take.")] = False,
) -> Any:
    """Bind a role to a node in a deployment's proposal, with all that the role needs."""
    body = {"node": node, "role": role, "deployment": deployment}
    bound = Client().post("/node_roles", body, dry_run=dry_run or None)
    return bound["created"]


@app.command()
@prints()
def move(node: Node, deployment: Deployment) -> Any:
    """Put a node into another deployment."""
    return Client().post(f"/nodes/{node}/move", {"deployment": deployment})


@app.command()
@prints(*COLUMNS)
def accept(
    nodes: Annotated[list[str] | None, typer.Argument(help="New machines to let in.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that wait.")] = False,
    key: Annotated[
        str | None, typer.Option(help="The key that the machine offers, as its console shows it: SHA256:...")
    ] = None,
) -> Any:
    """Let machines in: from now on the annealer may work on them. One that came with another key than its node is known
    by takes that key, so that only the machine is let in whose console you have seen."""
    client = Client()
    names = nodes or []
    if every:
        waiting = client.pages("/nodes", waiting=True)
        names = [machine["name"] for machine in waiting]
    if key is not None and len(names) != 1:
        raise typer.BadParameter("a key is of one machine: name just that.")
    body = None if key is None else {"key": key}
    return [client.post(f"/nodes/{name}/accept", body) for name in names]


@app.command()
@prints()
def power(node: Node, act: Annotated[PowerAction, typer.Argument()] = PowerAction.STATUS, yes: Yes = False) -> Any:
    """Ask for a machine's power over its BMC, or switch it."""
    if act in (PowerAction.OFF, PowerAction.RESET):
        confirm(f"Power {act} of {node} stops whatever runs there. Go on?", yes)
    client = Client()
    if act is PowerAction.STATUS:
        return client.get(f"/nodes/{node}/power")
    return client.post(f"/nodes/{node}/power", {"action": act.value})


@app.command()
def bmc(
    node: Node,
    address: Annotated[
        str | None, typer.Option(help="Host, or host:port. Without it, what the machine says is proposed.")
    ] = None,
    kind: BmcKind = "",
    username: str = "",
    password_stdin: PasswordStdin = False,
    shown_password: Annotated[str | None, typer.Option("--password", hidden=True)] = None,
    plain: Annotated[bool, typer.Option(help="Redfish: plain HTTP, on a network of its own.")] = False,
    insecure: Annotated[bool, typer.Option(help="Redfish: take any certificate.")] = False,
    cipher_suite: Annotated[int, typer.Option(help="IPMI: 17, or 3 for an old BMC on a network of its own.")] = 17,
    yes: Yes = False,
) -> None:
    """Say how a machine's BMC is reached. The password is asked for, or taken from RACKWRIGHT_BMC_PASSWORD, and kept
    sealed. What the machine found out itself is never used before somebody has said so here."""
    if shown_password is not None:
        fail(
            "A password on the command line can be read by everybody on this host, in the list of processes. Change it,"
            f" and give the new one when asked, with --password-stdin, or in {BMC_PASSWORD}.",
            Exit.USAGE,
        )
    client = Client()
    reported_kind = BMC_KINDS[0]
    if not address:
        address, reported_kind = _confirm_known_address(client, node, yes)
    body = {
        "kind": kind or reported_kind,
        "address": address,
        "username": username,
        "password": _read_bmc_password(node, password_stdin),
        "plain": plain,
        "insecure": insecure,
        "cipher_suite": cipher_suite,
    }
    client.put(f"/nodes/{node}/bmc", body, check_unchanged=False)


def _read_bmc_password(node: str, from_stdin: bool) -> str:
    """Return the password from standard input or the environment, else the one that the person types."""
    variable = None if from_stdin else os.environ.get(BMC_PASSWORD)
    return variable if variable is not None else read_password(f"Password of the BMC of {node}: ", from_stdin)


def _confirm_known_address(client: Client, node: str, yes: bool) -> tuple[str, str]:
    """Return the address that a BMC was given, or else that the machine reports for it, and what it speaks.

    A person has to agree.
    """
    shown = client.get(f"/nodes/{node}")
    chosen, proposed = shown["hint"].get("bmc"), shown["proposed_bmc"]
    if isinstance(chosen, dict) and chosen.get("address"):
        address, kind, source = chosen["address"], chosen.get("kind"), "The BMC was said to be"
    elif proposed is not None:
        address, kind, source = proposed["address"], proposed["kind"], "The machine says that its BMC is"
    else:
        raise typer.BadParameter(
            f"{node} does not say where its BMC is, or names an address that cannot be its BMC's: "
            "give it with --address."
        )
    kind = kind if kind in BMC_KINDS else BMC_KINDS[0]
    confirm(f"{source} at {address!r} ({kind}). Send the password there?", yes)
    return str(address), str(kind)


@app.command("host-key")
def host_key(
    node: Node,
    file: Annotated[
        Path | None, typer.Argument(help="An OpenSSH public key file, or - for standard input.", allow_dash=True)
    ] = None,
    pin: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="The key that it showed and was refused for: SHA256:...")
    ] = None,
    trust_on_first_use: Annotated[
        bool, typer.Option(help="Forget the key, and trust whichever is shown next; for administrators.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Say which host key a machine shows over SSH; the server logs in nowhere else. A machine that registered, or was
    installed from here, has told its own."""
    if sum((file is not None, pin is not None, trust_on_first_use)) != 1:
        fail("Give one of FILE, --pin FINGERPRINT and --trust-on-first-use.", Exit.USAGE)
    if trust_on_first_use:
        confirm(f"Whatever answers at the address of {node} next is taken for it, and given root's work. Go on?", yes)
    body: dict[str, Any] = {"trust_on_first_use": True}
    if file is not None:
        body = {"host_key": _read_key(file)}
    elif pin is not None:
        body = {"fingerprint": pin}
    Client().put(f"/nodes/{node}/host_key", body, check_unchanged=False)
    if trust_on_first_use:
        say(f"The next host key that {node} shows is trusted.")
    else:
        say(f"The server logs in to {node} only where this host key is shown. See whether it is let in: ", end="")
        say(f"rackwright node reach {node}")


def _read_key(file: Path) -> str:
    text = sys.stdin.read(8192) if str(file) == "-" else file.read_text()
    return text.strip()


@app.command()
@prints(for_people=show_reinstall)
def reinstall(
    node: Node,
    yes: Yes = False,
    digest: Annotated[
        str | None, typer.Option(help="Only if what is lost is still what you saw with this digest.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be lost, and its digest.")] = False,
) -> Any:
    """Install the operating system anew. All that is on its disks is lost: it is shown first, and asked."""
    if not plan:
        require_person(f"Reinstall {node}? This loses all that is on its disks.", yes or digest is not None)
    client = Client()
    seen = client.get(f"/nodes/{node}/reinstall")
    if plan:
        return seen
    if not yes and digest is None:
        print_installs(seen["installs"], stderr=True)
        say(f"digest: {seen['digest']}", file=sys.stderr)
    lost = name_lost_data(seen["installs"]) or "all that is on its disks"
    confirm(f"Reinstall {node}? This loses {lost}.", yes or digest is not None)
    return client.post(f"/nodes/{node}/reinstall", {"digest": digest or seen["digest"]})


@app.command()
def watch(node: Node, once: Annotated[bool, typer.Option(help="Show it once and end.")] = False) -> None:
    """Follow a node's noderoles until all are ACTIVE or one needs a person."""
    from rackwright.cli.watch import follow

    client = Client()
    follow(client, f"node {node}", once=once, node=client.get(f"/nodes/{node}")["name"])
