"""Statements sent by the driver itself, many without waiting for answers in between."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncPipeline
from psycopg.pq import PipelineStatus, TransactionStatus

Asked = tuple[str, Mapping[str, object]]
"""A statement and its values."""
Rows = list[tuple[Any, ...]]
Cursor = psycopg.AsyncCursor[tuple[Any, ...]]


@lru_cache(maxsize=1024)
def native(query: str) -> bytes:
    """The same statement in the driver's own spelling of its values."""
    return re.sub(r"%|(?<![:\w]):(\w+)", lambda found: f"%({found[1]})s" if found[1] else "%%", query).encode()


def array(numbers: Iterable[int]) -> str:
    """An array of PostgreSQL's, for `batch`: written as text, which is far faster than to have the driver do it."""
    return "{" + ",".join(map(str, numbers)) + "}"


class Pipe:
    """A connection on which one need not wait for an answer before one asks again."""

    def __init__(self, driver: AsyncConnection[Any]) -> None:
        self._driver = driver

    async def ask(self, *asked: Asked) -> list[Cursor]:
        """Send statements; the server begins with the first at once."""
        cursors = []
        for query, values in asked:
            cursor = self._driver.cursor(binary=True)
            await cursor.execute(native(query), values, prepare=True)
            cursors.append(cursor)
        return cursors

    async def answers(self, asked: Sequence[Cursor]) -> list[Rows]:
        """The rows of each, once all that was sent is done."""
        return [await cursor.fetchall() for cursor in asked]


def drop_open_questions(pipeline: AsyncPipeline) -> None:
    """Have a pipeline that was left by an error ask the server nothing more.

    Whoever is cancelled twice while it waits for the server's last word leaves psycopg's generator in the middle. When
    that is collected it goes on, asks a connection that is closed by then, and complains of it on standard error.
    """
    pipeline.command_queue.clear()
    pipeline.result_queue.clear()


def is_stuck(driver: AsyncConnection[Any]) -> bool:
    """Whether a connection is gone, or between questions and answers: nothing more can be asked on it."""
    return (
        driver.closed
        or driver.pgconn.pipeline_status != PipelineStatus.OFF
        or driver.pgconn.transaction_status == TransactionStatus.ACTIVE
    )
