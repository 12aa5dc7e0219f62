"""`rackwright mesh demo`: five servers on this machine, in network namespaces, to kill, pause and cut off."""

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import open_console, say
from rackwright.mesh import control
from rackwright.mesh.errors import MeshError

if TYPE_CHECKING:
    from rackwright.lab.mesh_fleet import Fleet
    from rackwright.lab.namespaces import Network

app = make_app("Five servers on this machine, in network namespaces.")

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
FOLDER = Path("/var/lib/rackwright/mesh-demo")
Number = Annotated[int, typer.Argument(min=1, max=5, help="Which server, 1 to 5.")]


class _PlainErrors:
    """Ends the command with one sentence if the block raises an error of the mesh."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, MeshError):
            say(f"rackwright mesh demo: {problem}", file=sys.stderr)
            raise typer.Exit(1) from problem


def _open_fleet() -> "Fleet":
    """Return the fleet of the five servers, whether they run or not."""
    from rackwright.lab.mesh_fleet import Fleet
    from rackwright.lab.namespaces import Network
    from rackwright.mesh.datastore.datastore_settings import DatastoreConfig

    folder = Path(os.environ.get("RACKWRIGHT_MESH_DEMO_DIR", FOLDER))
    prefix = os.environ.get("RACKWRIGHT_MESH_DEMO_PREFIX", "rwdemo")
    # Without etcd the demo shows who is alive, and no more.
    datastore = DatastoreConfig(grace=10.0) if shutil.which("etcd") else None
    return Fleet(folder, SERVERS, Network(SERVERS, prefix), die_with_me=False, datastore=datastore)


def _network(fleet: "Fleet") -> "Network":
    assert fleet.network is not None
    return fleet.network


@app.command()
def up() -> None:
    """Make the five servers, form a cluster of them, and show it."""
    with _PlainErrors():
        fleet = _open_fleet()
        _remove_fleet(fleet)
        try:
            _network(fleet).up()
            for server in SERVERS:
                fleet.home(server).mkdir(parents=True, mode=0o700)
            fleet.create_cluster()
            fleet.start_all()
            fleet.wait_agree(dict.fromkeys(SERVERS, "alive"))
        except BaseException:
            _remove_fleet(fleet)
            raise
        _print_members(fleet)
        say("Hurt one:  rackwright mesh demo kill 3 | pause 3 | cut 3       Mend all:  rackwright mesh demo heal")
        say("Look:      rackwright mesh demo members --watch               End:       rackwright mesh demo down")


@app.command()
def kill(number: Number) -> None:
    """Kill one server's agent, as a crash would."""
    with _PlainErrors():
        _open_fleet().kill(SERVERS[number - 1])


@app.command()
def pause(number: Number) -> None:
    """Stop one server's agent without ending it, as a hung machine would."""
    with _PlainErrors():
        _open_fleet().pause(SERVERS[number - 1])


@app.command()
def cut(number: Number) -> None:
    """Pull one server's network cable."""
    with _PlainErrors():
        fleet = _open_fleet()
        fleet.pid(SERVERS[number - 1])
        _network(fleet).cut(SERVERS[number - 1])


@app.command()
def heal() -> None:
    """Bring back whatever was killed, paused or cut."""
    from rackwright.lab.mesh_fleet import NotRunning

    with _PlainErrors():
        fleet = _open_fleet()
        _network(fleet).heal()
        for server in SERVERS:
            try:
                fleet.resume(server)
            except NotRunning:
                fleet.start(server)
        fleet.wait_agree(dict.fromkeys(SERVERS, "alive"))
        _print_members(fleet)


@app.command()
def members(
    number: Annotated[int, typer.Argument(min=1, max=5, help="Through whose eyes.")] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking.")] = False,
) -> None:
    """Who is alive, through the eyes of one of them."""
    from rich.live import Live

    from rackwright.cli.mesh.mesh_tables import members_table

    with _PlainErrors():
        home = _open_fleet().home(SERVERS[number - 1])
        if not watch:
            open_console().print(members_table(control.ask(home, "members")["members"]))
            return
        with contextlib.suppress(KeyboardInterrupt), Live(console=open_console(), refresh_per_second=8) as live:
            for answer in control.listen(home, "watch"):
                live.update(members_table(answer["members"]))


@app.command()
def datastore(number: Annotated[int, typer.Argument(min=1, max=5, help="Through whose eyes.")] = 1) -> None:
    """Which of them hold the datastore. Kill its leader, and look again after some seconds."""
    from rackwright.cli.mesh.mesh_tables import datastore_table

    with _PlainErrors():
        open_console().print(datastore_table(_open_fleet().ask(SERVERS[number - 1], "datastore")))


@app.command()
def down() -> None:
    """End the agents and remove the namespaces and their files."""
    with _PlainErrors():
        _remove_fleet(_open_fleet())


def _print_members(fleet: "Fleet") -> None:
    from rackwright.cli.mesh.mesh_tables import members_table

    open_console().print(members_table(fleet.ask(SERVERS[0], "members")["members"]))


def _remove_fleet(fleet: "Fleet") -> None:
    """End the agents, and remove the namespaces and files."""
    fleet.end()
    _network(fleet).down()
    shutil.rmtree(fleet.folder, ignore_errors=True)
