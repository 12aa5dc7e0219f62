"""A pool of connections for transactions that only read: plain psycopg connections that are kept open.

To read a row through SQLAlchemy costs three times as much as to read it directly, and most requests are one query.
Transactions that write go through SQLAlchemy (`session.py`).
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

MAX_CONNECTIONS = 20
"""The number of connections that can be in use at a time; a further caller waits."""
MAX_IDLE = 10
"""The number of connections that stay open while they are not in use."""
WAIT_SECONDS = 30.0
"""Seconds after which a caller that gets no connection fails."""
BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ReadConnections:
    """A pool that opens connections as they are needed. `close` it when nobody reads any more."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._idle: list[Connection] = []
        self._permits = asyncio.Semaphore(MAX_CONNECTIONS)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    @asynccontextmanager
    async def lend(self, *, once: bool) -> AsyncIterator[Connection]:
        """Lend a connection in a transaction that can only read, and sees the data of one moment throughout.

        `once`: for a single statement, which needs no transaction, and so a third of the round trips to the server.
        """
        await self._take_permit()
        try:
            connection = await self._take()
            try:
                if not once:
                    await connection.execute(BEGIN)
                yield connection
            finally:
                await self._give_back(connection)
        finally:
            self._permits.release()

    async def _take_permit(self) -> None:
        if not self._permits.locked():
            await self._permits.acquire()
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._permits.acquire()
        except TimeoutError:
            raise PoolTimeout(
                f"All {MAX_CONNECTIONS} connections for questions were in use for {WAIT_SECONDS:g} s."
            ) from None

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            await connection.close()
        return await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)

    async def _give_back(self, connection: Connection) -> None:
        """Keep the connection if its transaction can be ended. That changed nothing, so a rollback will do."""
        try:
            if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                await connection.execute(b"ROLLBACK")
        finally:
            usable = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if usable and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                await connection.close()


def _is_quiet(connection: Connection) -> bool:
    """Return whether the server sent nothing since the last result: then the connection still works.

    A server that ends a connection says so, or closes it. To look at the socket costs nothing, where a test query would
    cost as much as the query itself.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
