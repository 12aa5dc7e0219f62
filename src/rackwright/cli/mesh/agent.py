"""`rackwright agent`: run this server's agent of the mesh in the foreground, for systemd or for a person."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rackwright.cli.apps import make_app
from rackwright.cli.output.terminal import say

app = make_app("The agent of the mesh on this server.")

Folder = Annotated[Path | None, typer.Option("--dir", help="Where this server's identity and settings live.")]


@app.callback()
def agent() -> None:
    """The agent of the mesh on this server."""


@app.command()
def run(folder: Folder = None) -> None:
    """Run until SIGTERM, then leave the cluster. Logs are JSON lines on standard error."""
    import asyncio

    from rackwright.mesh.agent.agent import Agent
    from rackwright.mesh.errors import MeshError
    from rackwright.mesh.folder import default_folder

    async def run_agent() -> None:
        await Agent(folder or default_folder()).run()

    try:
        asyncio.run(run_agent())
    except MeshError as problem:
        say(f"rackwright agent: {problem}", file=sys.stderr)
        raise typer.Exit(1) from problem
