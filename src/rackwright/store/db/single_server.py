"""Work that one server of several does at a time: whoever holds an advisory lock on a connection of its own.

PostgreSQL gives the lock back when the connection ends, however its server ended, so nobody waits for a lease.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from rackwright.store.store import Store


class Alone:
    """The lock, while it is held."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Raises what says that the connection is lost, and the lock with it."""
        await self._connection.execute("SELECT 1")


@asynccontextmanager
async def alone(store: Store, lock: int) -> AsyncIterator[Alone | None]:
    """The lock, until the block ends; None: another server has it."""
    url = store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", [lock])
        row = await cursor.fetchone()
        yield Alone(connection) if row is not None and row[0] else None
