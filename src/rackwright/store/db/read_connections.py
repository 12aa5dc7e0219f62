"""Connections for transactions that only ask: psycopg's own, kept open, with nothing around them.

SQLAlchemy's way to a row costs three times what the row does; most requests are one question. What changes something
goes through SQLAlchemy (`session.py`).
"""

import asyncio
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import TimeoutError as PoolTimeout

Connection = psycopg.AsyncConnection[Any]

MOST = 20
"""Connections at a time; who comes later waits."""
KEPT = 10
"""Connections that stay open while nobody asks."""
PATIENCE = 30.0
"""Seconds after which a question that gets no connection is an error."""
BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ReadConnections:
    """Opens connections as they are needed. `close` it when nobody asks any more."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(MOST)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def lend(self, *, once: bool) -> AsyncIterator[Connection]:
        """A connection in a transaction that can only ask, and sees one moment throughout.

        `once`: for one statement, which needs no transaction around it, and so a third of the way to the server.
        """
        await self._take_place()
        try:
            connection = await self._take()
            try:
                if not once:
                    await connection.execute(BEGIN)
                yield connection
            finally:
                await self._give_back(connection)
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise PoolTimeout(f"All {MOST} connections for questions were in use for {PATIENCE:g} s.") from None

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            await connection.close()
        return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)

    async def _give_back(self, connection: Connection) -> None:
        """Keep the connection if its transaction can be ended. It changed nothing, so how it ends is the same."""
        try:
            if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                await connection.execute(b"ROLLBACK")
        finally:
            usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if usable and len(self._idle) < KEPT:
                self._idle.append(connection)
            else:
                await connection.close()


def _is_quiet(connection: Connection) -> bool:
    """Whether the server said nothing since the last answer. A server that ends a connection says so, or closes it; to
    look costs nothing, where to ask would cost as much as the question."""
    if connection.closed:
        return False
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return not look.poll(0)
