"""The one loop on a real database: notifications wake it, also after its connection broke; an outage is waited out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.annealer.loop import Loop, Reconcile
from rackwright.store.db.session import Session
from rackwright.store.store import Store

CHANNEL = "test_loop"
OTHER = "test_loop_other"


class Looks:
    """A `reconcile` that asks the database something, and counts the answers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0

    async def __call__(self) -> None:
        async with self.store.read() as session:
            await session.value("SELECT 1")
        self.count += 1

    async def one_more(self, after: int) -> None:
        await until(lambda: self.count > after, "it looked once more")


@asynccontextmanager
async def running(loop: Loop, reconcile: Reconcile) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run(reconcile))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def notify(rack: Rack, channel: str, payload: str = "") -> None:
    async def work(session: Session) -> None:
        await session.run("SELECT pg_notify(:channel, :payload)", channel=channel, payload=payload)

    await rack.store.change(work)


async def listeners(rack: Rack, channel: str = CHANNEL) -> list[int]:
    """The backends whose last statement was to listen to a channel."""
    rows = await rack.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = :last",
        last=f'LISTEN "{channel}"',
    )
    return [int(str(pid)) for (pid,) in rows]


async def listening(rack: Rack) -> int:
    found = await until(lambda: listeners(rack), "the loop listens")
    return found[0]


async def test_a_notification_wakes_it(rack: Rack) -> None:
    looks = Looks(rack.store)
    async with running(Loop(rack.store, (CHANNEL,), purpose="look"), looks):
        await listening(rack)
        for _ in range(3):
            before = looks.count
            await notify(rack, CHANNEL)
            await looks.one_more(before)


async def test_each_notification_is_passed_on_with_its_channel_and_payload(rack: Rack) -> None:
    notices: list[tuple[str, str]] = []

    def note(channel: str, payload: str) -> None:
        notices.append((channel, payload))

    loop = Loop(rack.store, (OTHER, CHANNEL), purpose="look", on_notice=note)
    async with running(loop, Looks(rack.store)):
        await listening(rack)
        await notify(rack, CHANNEL, "17")
        await notify(rack, OTHER)
        await until(lambda: len(notices) == 2, "both were heard")
    assert notices == [(CHANNEL, "17"), (OTHER, "")]


async def test_it_listens_and_looks_again_after_its_connection_broke(rack: Rack) -> None:
    looks = Looks(rack.store)
    async with running(Loop(rack.store, (CHANNEL,), purpose="look", back_off=0.01), looks):
        broken, before = await listening(rack), looks.count
        await rack.rows("SELECT pg_terminate_backend(:pid)", pid=broken)
        await looks.one_more(before)  # what was said meanwhile it did not hear

        async def listens_anew() -> bool:
            return bool(set(await listeners(rack)) - {broken})

        await until(listens_anew, "it listens on a new connection")
        before = looks.count
        await notify(rack, CHANNEL)
        await looks.one_more(before)


async def test_it_goes_on_when_the_database_answers_again(rack: Rack, caplog: pytest.LogCaptureFixture) -> None:
    looks, tries, lost = Looks(rack.store), 0, True

    async def look() -> None:
        nonlocal tries
        tries += 1
        if lost:
            async with rack.store.read() as session:
                await session.value("SELECT pg_terminate_backend(pg_backend_pid())")
        await looks()

    async with running(Loop(rack.store, purpose="look", back_off=0.01), look) as task:
        await until(lambda: tries >= 3, "it tried again")
        assert looks.count == 0
        assert not task.done()
        lost = False
        await looks.one_more(0)
    [told] = [record.getMessage() for record in caplog.records if record.name.endswith("loop")]
    assert told.startswith("cannot look, the database does not answer; trying again: ")


async def test_a_commit_of_this_process_wakes_it_while_it_runs(rack: Rack) -> None:
    looks = Looks(rack.store)
    loop = Loop(rack.store, purpose="look", with_commits=True)

    async def nothing(session: Session) -> None: ...

    async with running(loop, looks):
        await looks.one_more(0)
        before = looks.count
        await rack.store.change(nothing)
        await looks.one_more(before)
        assert loop.wake in rack.store.watchers
    assert loop.wake not in rack.store.watchers


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_its_connection_ends_with_it(rack: Rack, how: str) -> None:
    loop = Loop(rack.store, (CHANNEL,), purpose="look")
    async with running(loop, Looks(rack.store)) as task:
        await listening(rack)
        if how == "stop":
            loop.stop()
            await task
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        async def gone() -> bool:
            return not await listeners(rack)

        await until(gone, "nobody listens")


async def test_a_listener_that_breaks_ends_it(rack: Rack) -> None:
    """So that supervision starts it again, and it does not go on deaf."""

    def break_down(channel: str, payload: str) -> None:
        raise KeyError(payload)

    async with running(Loop(rack.store, (CHANNEL,), purpose="look", on_notice=break_down), Looks(rack.store)) as task:
        await listening(rack)
        await notify(rack, CHANNEL, "boot_id")
        with pytest.raises(ExceptionGroup) as raised:
            await task
    assert raised.group_contains(KeyError, match="boot_id")
