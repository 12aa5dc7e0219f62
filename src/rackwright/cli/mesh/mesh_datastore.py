"""`rackwright mesh datastore` and `mesh recover`: the datastore's members and health, and recovery from a snapshot."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.mesh.mesh_options import AsJson, Folder, Yes, plain_errors
from rackwright.cli.output.exits import confirm
from rackwright.cli.output.terminal import print_table, say
from rackwright.mesh import control
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.folder import default_folder


def add_verbs(app: typer.Typer) -> None:
    """Add the verbs of this module to `rackwright mesh`."""
    app.command()(datastore)
    app.command()(recover)


@plain_errors
def datastore(
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Take a snapshot here, now.")] = False,
    as_json: AsJson = False,
    folder: Folder = None,
) -> None:
    """Which servers hold the datastore, and how they are."""
    home = folder or default_folder()
    if snapshot:
        taken = control.ask(home, "snapshot")
        say(json.dumps(taken) if as_json else f"Snapshot taken: {taken['snapshot']}")
        return
    answer = control.ask(home, "datastore")
    if as_json:
        say(json.dumps(answer))
        return

    from rackwright.cli.mesh.mesh_tables import datastore_table

    print_table(datastore_table(answer))


@plain_errors
def recover(
    file: Annotated[Path | None, typer.Argument(help="The snapshot; this server's newest one if not given.")] = None,
    from_snapshot: Annotated[
        bool, typer.Option("--from-snapshot", help="From a snapshot: the only way there is.")
    ] = False,
    yes: Yes = False,
    folder: Folder = None,
) -> None:
    """Begin the datastore anew on this server from a snapshot. What was written after the snapshot is lost."""
    if not from_snapshot:
        raise BadRequest("a datastore is recovered from a snapshot only; say so: --from-snapshot [FILE]")
    home = folder or default_folder()
    question = "The datastore begins anew here; what came after the snapshot is lost, and no other server keeps its own"
    confirm(f"{question}. Go on?", yes)
    answer = control.ask(home, "recover", snapshot=str(file.absolute()) if file else None)
    era = f"this is datastore {answer['era']} of the cluster"
    say(f"Recovered from {answer['snapshot']}; {era}. It grows by itself now.")
