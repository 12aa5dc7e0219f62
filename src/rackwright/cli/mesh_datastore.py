"""`rackwright mesh datastore` and `mesh recover`: how the datastore is, and how to begin it anew from a snapshot."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rackwright.cli.mesh_options import AsJson, Folder, plain_errors
from rackwright.mesh import control
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.settings import default_folder


def add_verbs(app: typer.Typer) -> None:
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
        print(json.dumps(taken) if as_json else f"Snapshot taken: {taken['snapshot']}")
        return
    told = control.ask(home, "datastore")
    if as_json:
        print(json.dumps(told))
    else:
        Console().print(datastore_table(told))


@plain_errors
def recover(
    file: Annotated[Path | None, typer.Argument(help="The snapshot; this server's newest one if not given.")] = None,
    from_snapshot: Annotated[
        bool, typer.Option("--from-snapshot", help="From a snapshot: the only way there is.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    folder: Folder = None,
) -> None:
    """Begin the datastore anew on this server from a snapshot. What was written after the snapshot is lost."""
    if not from_snapshot:
        raise BadRequest("a datastore is recovered from a snapshot only; say so: --from-snapshot [FILE]")
    home = folder or default_folder()
    question = "The datastore begins anew here; what came after the snapshot is lost, and no other server keeps its own"
    if not yes and not typer.confirm(f"{question}. Go on?"):
        raise BadRequest("nothing was done")
    told = control.ask(home, "recover", snapshot=str(file.absolute()) if file else None)
    print(f"Recovered from {told['snapshot']}; this is datastore {told['era']} of the cluster. It grows by itself now.")


def datastore_table(told: dict[str, Any]) -> Table:
    table = Table("server", "part", "state", "data", title=summary(told))
    for member in told["members"]:
        part = "learner" if member["learner"] else "leader" if member["leader"] else "voter"
        state = "[green]healthy[/]" if member["healthy"] else "[red]not healthy[/]"
        table.add_row(member["server"] or "(not started)", part, state, f"{member['bytes'] / 1e6:.1f} MB")
    lines = [f"this server: {told['here']}" + (f" ({escape(told['why_not'])})" if told["why_not"] else "")]
    if told["conductor"]:
        lines.append(f"conducted by {told['conductor']}")
    if told["doing"]:
        lines.append(escape(told["doing"]))
    lines.append(f"{len(told['snapshots'])} snapshots here")
    if told["problem"]:
        lines.append(f"[red]{escape(told['problem'])}[/]")
    table.caption = "\n".join(lines)
    return table


def summary(told: dict[str, Any]) -> str:
    well = sum(member["healthy"] and not member["learner"] for member in told["members"])
    if not told["members"]:
        return "no datastore server is known here"
    if not told["quorum"]:
        return "[red]quorum lost: the datastore neither reads nor writes[/]"
    if not told["fault_tolerant"]:
        return f"[yellow]not fault tolerant: {well} of {told['count']} datastore servers[/]"
    return f"{well} of {told['count']} datastore servers are well"
