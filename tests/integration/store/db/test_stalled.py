"""A server that stands still in the middle of a transaction, and other servers, which wait for its locks."""

import asyncio
from functools import partial

import pytest
from psycopg import sql
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import UNREACHABLE, Session
from rackwright.store.db.stalled_transactions import end_stalled

TAKE_LOCK = ("SELECT pg_advisory_xact_lock(CAST(:lock AS bigint))", {"lock": CAP_LOCK})


class StalledWork:
    """Work of a server that stands still in the middle, until it is woken."""

    def __init__(self) -> None:
        self.pid = 0
        self.woken = asyncio.Event()

    async def in_pipeline(self, session: Session) -> None:
        self.pid = await session.value("SELECT pg_backend_pid()")
        async with session.pipe() as pipe:
            await pipe.fetch_rows(await pipe.send(TAKE_LOCK))
            await self.woken.wait()
            await pipe.fetch_rows(await pipe.send(TAKE_LOCK))

    async def in_copy(self, session: Session) -> None:
        self.pid = await session.value("SELECT pg_backend_pid()")
        await session.run("CREATE TEMPORARY TABLE copied (number int) ON COMMIT DROP")
        driver = await session.driver()
        async with driver.cursor() as cursor, cursor.copy(sql.SQL("COPY copied FROM STDIN")) as copy:
            await self.woken.wait()
            await copy.write_row([1])

    async def waits(self, rack: Rack) -> bool:
        """Return whether PostgreSQL waits for this work."""
        rows = await rack.rows(
            "SELECT state, wait_event FROM pg_stat_activity WHERE pid = :pid AND xact_start IS NOT NULL", pid=self.pid
        )
        return rows == [("active", "ClientRead")]


async def _is_free(session: Session) -> bool:
    free: bool = await session.value("SELECT pg_try_advisory_xact_lock(:lock)", lock=CAP_LOCK)
    return free


async def test_a_server_that_stands_still_between_two_statements_keeps_nobody_waiting(rack: Rack) -> None:
    stalled = StalledWork()
    task = asyncio.create_task(rack.store.change(stalled.in_pipeline))
    await until(lambda: stalled.waits(rack), "it stands still in its pipeline")
    assert await rack.store.change(end_stalled) == 0, "it has been still for a moment only"
    assert not await rack.store.change(_is_free)
    assert await rack.store.change(partial(end_stalled, stall=0)) == 1
    await until(lambda: rack.store.change(_is_free), "what it held is free")
    stalled.woken.set()
    with pytest.raises(UNREACHABLE):
        await task


async def test_a_copy_may_take_longer_because_it_may_only_be_long(rack: Rack) -> None:
    stalled = StalledWork()
    task = asyncio.create_task(rack.store.change(stalled.in_copy))
    await until(lambda: stalled.waits(rack), "it stands still in its COPY")
    assert await rack.store.change(partial(end_stalled, stall=0)) == 0
    stalled.woken.set()
    await task
    stalled = StalledWork()
    task = asyncio.create_task(rack.store.change(stalled.in_copy))
    await until(lambda: stalled.waits(rack), "it stands still in its COPY")
    assert await rack.store.change(partial(end_stalled, stall=0, copy=0)) == 1
    stalled.woken.set()
    with pytest.raises(UNREACHABLE):
        await task
