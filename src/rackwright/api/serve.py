"""A running server: database, first start, application, and a clean end of all of it."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from rackwright.api.app import create_app
from rackwright.api.context import Server
from rackwright.barclamps.loader import built_in
from rackwright.jigs.noop import NoopJig
from rackwright.store.bootstrap import first_start
from rackwright.store.database import open_database
from rackwright.store.people import ensure_admin
from rackwright.store.runs import Claimant
from rackwright.store.session import Store

TOKEN_FILE = "admin-token"  # noqa: S105  # the file's name, not a secret


@dataclass(frozen=True)
class Options:
    home: Path
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    test_barclamp: bool = False


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Server]:
    """The parts of a server on an open database, past its first start."""
    async with await open_database(options.database_url, options.home) as database:
        store = Store(database.engine)
        await first_start(store, built_in(test=options.test_barclamp), host_name())
        token = await store.change(ensure_admin, actor="first start")
        if token is not None:
            keep_secret(options.home / TOKEN_FILE, token)
        yield Server(store=store, jigs={"noop": NoopJig()}, claimant=Claimant(f"{host_name()}:{os.getpid()}"))


async def serve(options: Options) -> None:
    """Serve until told to stop."""
    async with running(options) as server:
        config = uvicorn.Config(create_app(server), host=options.host, port=options.port, log_level="warning")
        await uvicorn.Server(config).serve()


def keep_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret + "\n")
    aside.rename(path)


def host_name() -> str:
    """This host's full name; nodes need one."""
    name = socket.getfqdn().lower()
    return name if "." in name and not name.startswith("localhost") else f"{socket.gethostname().lower()}.internal"
