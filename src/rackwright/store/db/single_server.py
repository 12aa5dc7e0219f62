"""A lock for work that only one of several servers does at a time: an advisory lock on a connection of its own.

PostgreSQL releases the lock when the connection ends, however its server ended, so no server waits for a lease.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from rackwright.store.store import Store


class ServerLock:
    """The lock, while this server holds it."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Raise the driver's error if the connection is lost, and the lock with it."""
        await self._connection.execute("SELECT 1")


@asynccontextmanager
async def try_server_lock(store: Store, lock: int) -> AsyncIterator[ServerLock | None]:
    """Hold the lock until the block ends; None: another server has it."""
    url = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", [lock])
        row = await cursor.fetchone()
        yield ServerLock(connection) if row is not None and row[0] else None
