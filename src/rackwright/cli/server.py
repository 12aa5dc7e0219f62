"""rackwright server"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from rackwright.home import default_home


def main(argv: list[str]) -> int:
    """Run the server until it is told to stop."""
    app = typer.Typer(add_completion=False)
    app.command()(server)
    return int(app(args=argv, prog_name="rackwright server", standalone_mode=False) or 0)


def server(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8090,
    home: Annotated[Path | None, typer.Option(envvar="RACKWRIGHT_HOME", help="Where it keeps its data.")] = None,
    database_url: Annotated[
        str | None,
        typer.Option(envvar="RACKWRIGHT_DATABASE_URL", help="A PostgreSQL of yours, instead of the embedded one."),
    ] = None,
    test_barclamp: Annotated[bool, typer.Option(help="Also import the barclamp that tries every flag.")] = False,
    lab: Annotated[bool, typer.Option(help="Also import a workload for simulated machines.")] = False,
    heartbeat: Annotated[float, typer.Option(help="Seconds between the heartbeats of machines.")] = 10.0,
    lease: Annotated[float, typer.Option(help="Seconds after which the work of a dead server is taken over.")] = 30.0,
    tick: Annotated[float, typer.Option(help="Seconds between two looks at what nobody woke us for.")] = 5.0,
    manual: Annotated[
        bool, typer.Option(help="Without annealer: nothing runs but by hand, with `rackwright anneal step`.")
    ] = False,
) -> None:
    """Run the server."""
    from rackwright.api.serve import TOKEN_FILE, Options, serve

    options = Options(
        home=home or default_home(),
        database_url=database_url,
        host=host,
        port=port,
        test_barclamp=test_barclamp,
        lab=lab,
        heartbeat=heartbeat,
        lease=lease,
        tick=tick,
        manual=manual,
    )
    print(f"Rackwright on http://{host}:{port}; admin's token in {options.home / TOKEN_FILE}", file=sys.stderr)
    asyncio.run(serve(options))
