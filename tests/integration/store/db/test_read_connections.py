"""Connections for transactions that only read: what they see, and which are used again."""

import asyncio

import psycopg
import pytest
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.domain.errors import NotFound
from rackwright.store.db.read_connections import MAX_CONNECTIONS
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines.nodes import get_node


async def backend(rack: Rack) -> int:
    """Return the id of the server process that answered."""
    async with rack.store.read(once=True) as session:
        return int(await session.value("SELECT pg_backend_pid()"))


async def test_a_connection_is_used_again_also_after_a_question_that_failed(rack: Rack) -> None:
    first = await backend(rack)
    with pytest.raises(NotFound):
        async with rack.store.read() as session:
            await get_node(session, "nobody", EVERYTHING)
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with rack.store.read() as session:
            await session.value("SELECT id FROM nowhere")
    assert await backend(rack) == first


async def test_a_connection_that_the_server_ended_is_not_used_again(rack: Rack) -> None:
    ended = await backend(rack)
    await rack.store.change(lambda session: session.run("SELECT pg_terminate_backend(:pid, 10000)", pid=ended))
    assert await backend(rack) != ended


async def test_who_is_cancelled_while_waiting_leaves_no_transaction_behind(rack: Rack) -> None:
    async def wait() -> None:
        async with rack.store.read() as session:
            reading.set()
            await session.value("SELECT pg_sleep(600)")

    for _ in range(MAX_CONNECTIONS + 1):  # a permit that was not given back would be missed by the last
        reading = asyncio.Event()
        waiting = asyncio.create_task(wait())
        await reading.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def none_is_open() -> bool:
        async with rack.store.read() as session:
            open_transactions = await session.value(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
                " AND pid <> pg_backend_pid()"
            )
        return bool(open_transactions == 0)

    # A cancellation that reached the server before its statement did nothing; the server then sees the client gone.
    await until(none_is_open, "no transaction is open any more")


async def test_a_transaction_that_asks_sees_one_moment_and_can_change_nothing(rack: Rack) -> None:
    async with rack.store.read() as session:
        before = await session.value("SELECT count(*) FROM groups")
        await rack.store.change(lambda other: other.run("INSERT INTO groups (category, name) VALUES ('rack', 'a')"))
        assert await session.value("SELECT count(*) FROM groups") == before
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await session.run("DELETE FROM groups")


async def test_a_second_question_of_who_asks_once_is_refused(rack: Rack) -> None:
    """It would see another moment than the first."""
    async with rack.store.read(once=True) as session:
        await session.value("SELECT 1")
        with pytest.raises(AssertionError, match="read without `once`"):
            await session.value("SELECT 2")
