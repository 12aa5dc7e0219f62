"""Statements that are sent together, and rows by COPY, when the server goes away in the middle of them or whoever asked
is cancelled."""

import asyncio
import contextlib
import gc
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.store.db.session import UNREACHABLE, Session

STATEMENTS = 5


async def _numbers_read(session: Session) -> list[int]:
    results = await session.batch(
        *[("SELECT CAST(:number AS int)", {"number": number}) for number in range(STATEMENTS)]
    )
    return [rows[0][0] for rows in results]


async def _sleeps(rack: Rack, backend: list[int]) -> bool:
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY (:backend) AND wait_event = 'PgSleep'"
    return bool(await rack.rows(asleep, backend=backend))


@pytest.mark.parametrize("unread", [1, STATEMENTS])
async def test_a_lost_connection_is_said_once_and_the_next_change_has_another(
    rack: Rack, caplog: pytest.LogCaptureFixture, unread: int
) -> None:
    backend: list[int] = []

    async def work(session: Session) -> None:
        backend.append(await session.value("SELECT pg_backend_pid()"))
        async with session.pipe() as pipe:
            cursors = await pipe.send(*[("SELECT pg_sleep(:seconds)", {"seconds": 600}) for _ in range(unread)])
            await pipe.fetch_rows(cursors)

    with caplog.at_level(logging.ERROR):
        sleeping = asyncio.create_task(rack.store.change(work))
        await until(lambda: _sleeps(rack, backend), "the server is at the first statement")
        async with rack.store.read() as session:
            assert await session.value("SELECT pg_terminate_backend(:pid)", pid=backend[0])
        with pytest.raises(UNREACHABLE):
            await sleeping
        assert await rack.store.change(_numbers_read) == [*range(STATEMENTS)]
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_connection_that_cannot_leave_its_pipeline_is_not_used_again(
    rack: Rack, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a server that is shut down has said so, and not yet closed the connection."""

    async def stuck(*_: object) -> None:
        """It is busy and does not leave."""

    async def work(session: Session) -> None:
        async with session.pipe() as pipe:
            await pipe.send(("SELECT 1", {}))
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    with caplog.at_level(logging.ERROR):
        with monkeypatch.context() as patched:
            patched.setattr(psycopg.AsyncPipeline, "__aexit__", stuck)
            with pytest.raises(psycopg.errors.AdminShutdown):
                await rack.store.change(work)
        assert await rack.store.change(_numbers_read) == [*range(STATEMENTS)]
    assert [record.getMessage() for record in caplog.records] == []


async def test_whoever_is_cancelled_in_the_middle_of_anything_hears_of_nothing_else(
    rack: Rack, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(session: Session) -> None:
        await session.run("CREATE TEMP TABLE IF NOT EXISTS written (number int8) ON COMMIT DROP")
        await session.copy("written", ("number",), ("int8",), [(number,) for number in range(STATEMENTS)])
        await _numbers_read(session)

    ends: Counter[bool] = Counter()
    with caplog.at_level(logging.ERROR):
        for turns in range(400):
            task = asyncio.create_task(rack.store.change(work))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            ends[task.cancelled()] += 1
    assert ends[True] > 10, "it was caught in the middle, too"
    assert [record.getMessage() for record in caplog.records] == []


async def test_whoever_is_cancelled_twice_while_leaving_a_pipeline_leaves_nothing_that_complains_later(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last question was sent, and its answer is not there: as when a server is stopped."""
    complaints: list[str] = []
    leave = psycopg.AsyncPipeline._exit_gen

    def cancelled_on_the_way(pipeline: psycopg.AsyncPipeline) -> Generator[Any, Any, None]:
        steps = leave(pipeline)
        wish = next(steps)
        for number in itertools.count():
            task = asyncio.current_task()
            if number == 1 and task is not None:
                task.cancel()
            ready = yield wish
            try:
                wish = steps.send(ready)
            except StopIteration:
                return

    async def cancelled_again(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(sys, "unraisablehook", lambda about: complaints.append(f"{about.object}: {about.exc_value}"))
    with monkeypatch.context() as patched:
        patched.setattr(psycopg.AsyncPipeline, "_exit_gen", cancelled_on_the_way)
        patched.setattr(psycopg.AsyncConnection, "_try_cancel", cancelled_again)
        task = asyncio.create_task(rack.store.change(_numbers_read))
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        del task
    assert await rack.store.change(_numbers_read) == [*range(STATEMENTS)]
    gc.collect()
    assert complaints == []
