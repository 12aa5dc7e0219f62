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
) -> None:
    """Run the server."""
    from rackwright.api.serve import TOKEN_FILE, Options, serve

    options = Options(home or default_home(), database_url, host, port, test_barclamp)
    print(f"Rackwright on http://{host}:{port}; admin's token in {options.home / TOKEN_FILE}", file=sys.stderr)
    asyncio.run(serve(options))
