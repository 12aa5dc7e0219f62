"""The one loop: it looks when it is woken or a tick is over, backs off from trouble, and ends when it is told to."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
from sqlalchemy.exc import DataError
from tests.support.waiting import until

from rackwright.annealer.loop import AT_ONCE, Loop, Reconcile

NEVER = 3600.0


class Looks:
    """A `reconcile` that counts its looks and does at each what is next in a list."""

    def __init__(self, *plan: float | BaseException | Callable[[], None] | None) -> None:
        self.plan = list(plan)
        self.count = 0

    async def __call__(self) -> float | None:
        self.count += 1
        step = self.plan.pop(0) if self.plan else None
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            step()
            return None
        return step

    async def reach(self, count: int) -> None:
        await until(lambda: self.count >= count, f"look number {count}", every=0.001)


def away(text: str = "away") -> psycopg.OperationalError:
    return psycopg.OperationalError(text)


@asynccontextmanager
async def running(loop: Loop, reconcile: Reconcile) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run(reconcile))
    try:
        yield task
    finally:
        loop.stop()
        await asyncio.gather(task, return_exceptions=True)


async def turns(count: int = 20) -> None:
    """Let everything run that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_it_looks_at_its_start_and_after_every_tick() -> None:
    looks = Looks()
    async with running(Loop(None, tick=0.001, purpose="look"), looks):
        await looks.reach(5)


async def test_it_looks_a_tick_after_its_start_if_so_told() -> None:
    looks = Looks()
    loop = Loop(None, tick=NEVER, purpose="look", at_start=False)
    async with running(loop, looks):
        await turns()
        assert looks.count == 0
        loop.wake()
        await looks.reach(1)


@pytest.mark.parametrize("tick", [NEVER, None])
async def test_a_wake_makes_it_look_before_the_tick(tick: float | None) -> None:
    looks = Looks()
    loop = Loop(None, tick=tick, purpose="look")
    async with running(loop, looks):
        await turns()
        assert looks.count == 1
        loop.wake()
        await looks.reach(2)


async def test_a_wake_in_the_middle_of_a_look_is_not_lost() -> None:
    loop = Loop(None, purpose="look")
    looks = Looks(loop.wake)
    async with running(loop, looks):
        await looks.reach(2)
        await turns()
        assert looks.count == 2


async def test_what_the_look_returns_takes_the_place_of_the_tick() -> None:
    looks = Looks(AT_ONCE, 0.001)
    async with running(Loop(None, tick=NEVER, purpose="look"), looks):
        await looks.reach(3)
        await turns()
        assert looks.count == 3


async def test_however_often_it_is_woken_it_looks_at_most_so_often() -> None:
    loop = Loop(None, purpose="look", at_most_every=NEVER)
    looks = Looks(loop.wake, AT_ONCE)
    async with running(loop, looks):
        await looks.reach(1)
        loop.wake()
        await turns()
        assert looks.count == 1


async def test_a_database_that_does_not_answer_is_asked_again() -> None:
    looks = Looks(away(), away())
    async with running(Loop(None, tick=NEVER, purpose="look", back_off=0.001), looks) as task:
        await looks.reach(3)
        await turns()
        assert looks.count == 3
        assert not task.done()


async def test_a_loop_backs_off_for_a_tick_unless_told_otherwise() -> None:
    looks = Looks(away())
    async with running(Loop(None, tick=0.001, purpose="look"), looks):
        await looks.reach(2)


async def test_no_wake_shortens_the_back_off_but_a_stop_ends_it() -> None:
    loop = Loop(None, purpose="look", back_off=NEVER)
    looks = Looks(away())
    async with running(loop, looks) as task:
        await looks.reach(1)
        loop.wake()
        await turns()
        assert looks.count == 1
        loop.stop()
        await task


async def test_trouble_is_told_once_for_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(away("gone"), away("gone"), away("full"), AT_ONCE, away("full"), DataError("", {}, Exception("no")))
    with caplog.at_level(logging.INFO):
        async with running(Loop(None, tick=NEVER, purpose="count sheep", back_off=0.001), looks):
            await looks.reach(7)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [(level, text.partition("\n")[0]) for level, text in told] == [
        ("WARNING", "cannot count sheep, the database does not answer; trying again: gone"),
        ("WARNING", "cannot count sheep, the database does not answer; trying again: full"),
        ("INFO", "can count sheep again"),
        ("WARNING", "cannot count sheep, the database does not answer; trying again: full"),
        ("ERROR", "cannot count sheep, the database refuses it; trying again: (builtins.Exception) no"),
        ("INFO", "can count sheep again"),
    ]


async def test_anything_else_that_breaks_ends_it() -> None:
    looks = Looks(KeyError("boot_id"))
    with pytest.raises(KeyError):
        await Loop(None, tick=NEVER, purpose="look").run(looks)


async def test_it_can_be_run_again_after_it_broke() -> None:
    loop, looks = Loop(None, tick=NEVER, purpose="look"), Looks(KeyError("boot_id"))
    with pytest.raises(KeyError):
        await loop.run(looks)
    async with running(loop, looks):
        await looks.reach(2)


async def test_stop_ends_it_after_the_look_that_is_under_way() -> None:
    loop, entered, go_on = Loop(None, tick=NEVER, purpose="look"), asyncio.Event(), asyncio.Event()
    ended = False

    async def look() -> None:
        nonlocal ended
        entered.set()
        await go_on.wait()
        ended = True

    async with running(loop, look) as task:
        await entered.wait()
        loop.stop()
        assert loop.stopping
        await turns()
        assert not task.done()
        go_on.set()
        await task
    assert ended


async def test_one_that_was_stopped_does_not_start() -> None:
    loop, looks = Loop(None, tick=NEVER, purpose="look"), Looks()
    loop.stop()
    await loop.run(looks)
    assert looks.count == 0


@pytest.mark.parametrize("plan", [(), (away(),)], ids=["waiting", "backing off"])
async def test_cancel_ends_it_at_once(plan: tuple[BaseException, ...]) -> None:
    looks = Looks(*plan)
    async with running(Loop(None, tick=NEVER, purpose="look"), looks) as task:
        await looks.reach(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_look_that_makes_database_trouble_of_a_cancel_is_cancelled_all_the_same() -> None:
    entered = asyncio.Event()

    async def look() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise away("the connection was closed") from None

    async with running(Loop(None, tick=0.001, purpose="look"), look) as task:
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
