"""Runs the server of a lab: in this process, or in a process of its own that can be killed and started again."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from rackwright.api.app import create_app
from rackwright.child_process import ChildProcess, output_tail
from rackwright.client.access import Access
from rackwright.client.awaited import AsyncApiClient
from rackwright.lab.hardware import LabFailed
from rackwright.server.composition import running_server
from rackwright.server.listener import listening
from rackwright.server.running_servers import local_url
from rackwright.server.settings import PREFIX, Options
from rackwright.store.db.database import open_database
from rackwright.store.db.vault import load_vault
from rackwright.store.store import Store

STARTING_SECONDS = 600.0
STOPPING_SECONDS = 600.0

Serving = Callable[[Options], AbstractAsyncContextManager[Store]]
"""Runs a server for as long as its block lasts; yields the server's store."""


@asynccontextmanager
async def in_this_process(options: Options) -> AsyncIterator[Store]:
    async with running_server(options) as server, listening(create_app(server), options.host, options.port):
        yield server.store


class ServerProcess:
    """A process of `rackwright server`, as a person starts it. Its database runs as long as the block of `serving`."""

    def __init__(self) -> None:
        self._options: Options | None = None
        self._process: ChildProcess | None = None

    @asynccontextmanager
    async def serving(self, options: Options) -> AsyncIterator[Store]:
        self._options = options
        async with await open_database(options.database_url, options.home) as database:
            await self.start()
            try:
                yield Store(database, load_vault(options.home))
            finally:
                await self._end()

    async def start(self) -> None:
        """Start the server, and wait until it is ready."""
        assert self._options is not None
        command = [sys.executable, "-m", "rackwright", "server", *_flags(self._options)]
        self._process = await ChildProcess.start(
            command, self.log, environment=os.environ | _environment(self._options)
        )
        address = local_url("http", self._options.host, self._options.port)
        async with asyncio.timeout(STARTING_SECONDS), AsyncApiClient(Access(address), timeout=30) as api:
            if not await self._process.wait_ready(api.is_ready, every=0.1):
                raise LabFailed(f"The server of the lab ended by itself: {output_tail(self.log)}")

    async def kill(self) -> None:
        """Kill the server as kill -9 does, so that nothing of it can end in order."""
        assert self._process is not None
        await self._process.kill()

    async def _end(self) -> None:
        if self._process is not None:
            await self._process.end(STOPPING_SECONDS)

    @property
    def log(self) -> Path:
        assert self._options is not None
        return self._options.home / "server.log"


def _environment(options: Options) -> dict[str, str]:
    """Return the settings that must not be on the command line, which every user of the computer can read."""
    return {} if options.database_url is None else {f"{PREFIX}DATABASE_URL": options.database_url}


def _flags(options: Options) -> list[str]:
    """Return the command line arguments for these options."""
    words = []
    for name in sorted(options.model_fields_set - {"database_url"}):
        value = getattr(options, name)
        flag = f"--{FLAGS.get(name, name.replace('_', '-'))}"
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [word for entry in value for word in (flag, str(entry))]
        elif value is not None:
            words += [flag, str(value)]
    return words


FLAGS = {"dhcp_interfaces": "dhcp-interface"}
"""Names of flags that differ from the names of their settings."""
