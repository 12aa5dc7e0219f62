"""/healthz: the process answers. /readyz: it can do its work. Neither tells a stranger more than that."""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import text

from rackwright.api.auth.limits import Source
from rackwright.api.context import Server
from rackwright.store.db.migrate import current_revision, revisions
from rackwright.store.db.session import DATABASE_TROUBLE

router = APIRouter(tags=["health"], include_in_schema=False)

DATABASE_SECONDS = 2.0
LEAST_FREE = 64 * 1024 * 1024
"""Bytes: four segments of the database's log."""
STALL_SECONDS = 60.0
"""Seconds without a pass of the annealer after which something is wrong: it makes one at every tick."""


class Readiness:
    """Whether the annealer gets on: remembers when its count of passes last changed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._passes = -1
        self._since = clock()

    def is_annealing(self, server: Server) -> bool:
        if server.annealer is None:
            return True  # work is done by hand: there is no annealer to wait for
        now, passes = self._clock(), server.annealer.counters.passes
        if passes != self._passes:
            self._passes, self._since = passes, now
        return now - self._since < STALL_SECONDS


class ReadyOut(BaseModel):
    ready: bool
    database: bool
    migrations: bool
    annealer: bool
    disk: bool
    broken: list[str] = Field(description="Background work that broke and is started again; the log says why.")


def has_room(folder: Path) -> bool:
    """Return whether the file system of a folder has room for what is to be written next."""
    return shutil.disk_usage(folder).free >= LEAST_FREE


async def can_commit(server: Server) -> bool:
    """Return whether the database takes writes: with a full disk it still answers queries. Leaves nothing behind."""
    async with server.store.engine.begin() as connection:
        await connection.execute(text("SELECT pg_logical_emit_message(true, 'rackwright', 'ready')"))
    return True


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process is there and answers. Nothing else is said to a stranger."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"model": ReadyOut}})
async def readyz(request: Request, response: Response, source: Source) -> ReadyOut:
    """Whether requests and work should be sent here."""
    server: Server = request.app.state.server
    readiness: Readiness = request.app.state.readiness
    database = migrations = False
    try:
        async with asyncio.timeout(DATABASE_SECONDS):
            migrations = await current_revision(server.store.engine) == revisions()[-1]
            database = await can_commit(server)
    except (*DATABASE_TROUBLE, TimeoutError):
        pass  # that is the answer
    annealer = readiness.is_annealing(server)
    disk = has_room(server.shelf.folder.parent)
    # What is broken is told, and does not make the server unready: the others have the same work and the same code, so
    # a load balancer would take them all away, and with them the API that people mend it by.
    result = ReadyOut(
        ready=database and migrations and annealer and disk,
        database=database,
        migrations=migrations,
        annealer=annealer,
        disk=disk,
        broken=[part.name for part in server.supervisor.broken],
    )
    response.status_code = 200 if result.ready else 503
    return result
