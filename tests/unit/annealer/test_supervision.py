"""Background work that breaks is started again, and is shown as broken until it has run for a while."""

import asyncio

import pytest
from tests.support.waiting import until

from rackwright.annealer.supervision import Supervisor


class Fragile:
    """Breaks at its first `breaks` starts, then runs until it is told to end."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.starts = 0
        self.running = asyncio.Event()
        self.end = asyncio.Event()

    async def run(self) -> None:
        self.starts += 1
        if self.starts <= self.breaks:
            raise KeyError("boot_id")
        self.running.set()
        await self.end.wait()


async def test_what_breaks_is_started_again_and_counted() -> None:
    supervisor, part = Supervisor(first_pause=0, recovered_after=3600), Fragile(breaks=3)
    task = asyncio.create_task(supervisor.keep_running("watch", part.run))
    await part.running.wait()
    assert [(broken.name, broken.restarts, broken.error) for broken in supervisor.broken] == [
        ("watch", 3, "KeyError: 'boot_id'")
    ]
    part.end.set()
    await task
    assert part.starts == 4


async def test_what_has_run_for_a_while_is_sound_again() -> None:
    supervisor, part = Supervisor(first_pause=0, recovered_after=0.01), Fragile(breaks=1)
    task = asyncio.create_task(supervisor.keep_running("watch", part.run))
    await until(lambda: part.running.is_set() and not supervisor.broken, "the part is sound again")
    assert supervisor.parts["watch"].restarts == 1
    part.end.set()
    await task


async def test_each_pause_is_twice_the_last_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, part = Supervisor(first_pause=1, longest_pause=5), Fragile(breaks=5)
    pauses: list[float] = []

    async def not_stopped(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    monkeypatch.setattr(supervisor, "_is_stopped_within", not_stopped)
    task = asyncio.create_task(supervisor.keep_running("watch", part.run))
    await part.running.wait()
    part.end.set()
    await task
    assert pauses == [1, 2, 4, 5, 5]


async def test_nothing_is_started_again_once_the_server_stops() -> None:
    supervisor, part = Supervisor(first_pause=3600), Fragile(breaks=1)
    task = asyncio.create_task(supervisor.keep_running("watch", part.run))
    await until(lambda: bool(supervisor.broken), "the part broke")
    supervisor.stop()
    await task
    assert part.starts == 1


async def test_a_break_of_several_tasks_at_once_is_told_by_its_first_cause() -> None:
    async def break_inside() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(Fragile(breaks=1).run())

    supervisor = Supervisor(first_pause=3600)
    task = asyncio.create_task(supervisor.keep_running("installs", break_inside))
    await until(lambda: bool(supervisor.broken), "the part broke")
    assert supervisor.broken[0].error == "KeyError: 'boot_id'"
    supervisor.stop()
    await task


async def test_a_part_that_is_cancelled_ends() -> None:
    supervisor, part = Supervisor(), Fragile(breaks=0)
    task = asyncio.create_task(supervisor.keep_running("watch", part.run))
    await part.running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
