"""`rackwright barclamp`: packages of roles: write, check, import.

A barclamp holds code that runs with the server's rights, so it is imported from this host's own disk, by the user who
runs the server.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.client import Client
from rackwright.cli.output.exits import Exit, fail
from rackwright.cli.output.printing import prints
from rackwright.cli.output.terminal import say
from rackwright.cli.profile import chosen_url, local_server
from rackwright.cli.shared import Filters, Limit, Sort, complete_names, read_list
from rackwright.shown_urls import shown_url

app = make_app("Packages of roles.")

Barclamp = Annotated[str, typer.Argument(help="Name of a barclamp.", autocompletion=complete_names("/barclamps"))]
Folder = Annotated[Path, typer.Argument(help="The folder with barclamp.yml in it.")]


@app.command("list")
@prints("name", "version", "roles", "imported_at")
def list_all(filters: Filters = None, sort: Sort = None, limit: Limit = None) -> list[Any]:
    """All barclamps of the server."""
    return read_list("/barclamps", filters, sort, limit)


@app.command("show")
@prints()
def show_one(barclamp: Barclamp) -> Any:
    """One barclamp."""
    return Client().get(f"/barclamps/{barclamp}")


@app.command()
def new(
    folder: Folder,
    jig: Annotated[str, typer.Option(help="script, simulate to try things, or lab for simulated machines.")] = "script",
) -> None:
    """Write a barclamp to begin with: complete, commented, and ready to import."""
    from rackwright.cli.barclamp_template import JIGS, write_barclamp
    from rackwright.domain.errors import Invalid

    if jig not in JIGS:
        fail(f"There is no beginning for the jig {jig!r}; there is one for {' and '.join(JIGS)}.", Exit.USAGE)
    try:
        written = write_barclamp(folder, jig)
    except Invalid as error:
        fail(str(error), Exit.USAGE)
    except FileExistsError:
        fail(f"{folder} is there already; nothing was changed. Give the name of a folder to make.", Exit.CONFLICT)
    for file in written:
        say(f"wrote {file}")
    say(f"Next: rackwright barclamp check {folder}, then: rackwright barclamp import {folder}")


@app.command()
@prints()
def check(folder: Folder) -> Any:
    """Whether a barclamp is right; what is wrong is said with file and line."""
    return _describe_barclamp(folder)


@app.command("import")
@prints()
def import_folder(
    folder: Folder,
    home: Annotated[Path | None, typer.Option(help="Where the server keeps its data.")] = None,
    database_url: Annotated[
        str | None, typer.Option(help="The server's database, if it is not the embedded one.")
    ] = None,
) -> Any:
    """Import a barclamp on the server's own host, or import it anew after a change."""
    import asyncio

    barclamp = _describe_barclamp(folder)
    options = {"home": home, "database_url": database_url}
    flags = {name: value for name, value in options.items() if value is not None}
    behind = asyncio.run(_import(folder, flags or _home_of_server()))
    for deployment in behind:
        say(
            f"Deployment {deployment} is behind: what its roles need has changed. To see what its next commit changes: "
            f"rackwright deployment propose {deployment}; rackwright deployment plan {deployment}",
            file=sys.stderr,
        )
    return {**barclamp, "behind": behind}


def _home_of_server() -> dict[str, Any]:
    """Return the home of the server that commands go to, which must be on this host: code comes from its own disk."""
    server = local_server()
    if server is not None:
        return {"home": Path(server.home)}
    if url := chosen_url():
        fail(
            f"Commands go to {shown_url(url)}, which is no server that you run on this host. A barclamp holds code that"
            " runs with the server's rights, so it is imported on the server's own host, by who runs the server: copy"
            " the folder there and import it there. For a server on this host that does not run now, give --home.",
            Exit.USAGE,
        )
    return {}


def _describe_barclamp(folder: Path) -> dict[str, Any]:
    """Load a barclamp, and return its name, version and roles; end the command if something in it is wrong."""
    from rackwright.barclamps.loader import load_folder
    from rackwright.domain.errors import RackwrightError

    try:
        barclamp = load_folder(folder)
    except RackwrightError as error:
        fail(str(error), Exit.USAGE)
    return {"name": barclamp.name, "version": barclamp.version, "roles": [role.name for role in barclamp.roles]}


async def _import(folder: Path, flags: dict[str, Any]) -> list[str]:
    """Import the folder, and return the deployments whose roles need something else now than when committed."""
    from rackwright.barclamps.loader import load_folder
    from rackwright.domain.errors import RackwrightError
    from rackwright.server.settings import load_settings
    from rackwright.store.barclamp_import import import_barclamps
    from rackwright.store.database_errors import DatabaseEmpty
    from rackwright.store.db.database import open_database
    from rackwright.store.db.vault_check import open_vault
    from rackwright.store.store import Store

    try:
        options = load_settings(flags).options
        async with await open_database(options.database_url, options.home, create=False) as database:
            store = Store(database, await open_vault(Store(database), options.home))
            barclamp = load_folder(folder)
            return await store.change_graph(
                lambda session: import_barclamps(session, [barclamp]), actor="barclamp import"
            )
    except DatabaseEmpty as error:
        fail(str(error), Exit.NOT_FOUND)
    except RackwrightError as error:
        fail(str(error), Exit.CONFLICT)
