"""Send statements with the driver itself, several of them without waiting for results in between."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncPipeline
from psycopg.pq import PipelineStatus, TransactionStatus

Statement = tuple[str, Mapping[str, object]]
"""The SQL of a statement, and its values."""
Rows = list[tuple[Any, ...]]
Cursor = psycopg.AsyncCursor[tuple[Any, ...]]


@lru_cache(maxsize=1024)
def to_driver_sql(query: str) -> bytes:
    """Return a statement with its `:name` placeholders in the driver's spelling, `%(name)s`."""
    return re.sub(r"%|(?<![:\w]):(\w+)", lambda match: f"%({match[1]})s" if match[1] else "%%", query).encode()


def array(numbers: Iterable[int]) -> str:
    """Return the text of a PostgreSQL array, for `batch`: far faster than to have the driver write it."""
    return "{" + ",".join(map(str, numbers)) + "}"


class Pipe:
    """A connection on which the next statement can be sent before the result of the last one is there."""

    def __init__(self, driver: AsyncConnection[Any]) -> None:
        self._driver = driver

    async def send(self, *statements: Statement) -> list[Cursor]:
        """Send statements, and return a cursor for each; the server begins with the first at once."""
        cursors = []
        for query, values in statements:
            cursor = self._driver.cursor(binary=True)
            await cursor.execute(to_driver_sql(query), values, prepare=True)
            cursors.append(cursor)
        return cursors

    async def fetch_rows(self, cursors: Sequence[Cursor]) -> list[Rows]:
        """Return the rows of each cursor, once everything that was sent is done."""
        return [await cursor.fetchall() for cursor in cursors]


def drop_unanswered_statements(pipeline: AsyncPipeline) -> None:
    """Empty a pipeline that was left by an error, so that it sends the server nothing more.

    A task that is cancelled twice while it waits for the server's last result leaves psycopg's generator in the middle.
    When the generator is collected it goes on, uses a connection that is closed by then, and complains of that on
    standard error.
    """
    pipeline.command_queue.clear()
    pipeline.result_queue.clear()


def is_stuck(driver: AsyncConnection[Any]) -> bool:
    """Return whether a connection is gone, or stuck between statements and results: it cannot be used any more."""
    return (
        driver.closed
        or driver.pgconn.pipeline_status != PipelineStatus.OFF
        or driver.pgconn.transaction_status == TransactionStatus.ACTIVE
    )
