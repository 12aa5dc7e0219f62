"""Keeps the parts of an agent running: what fails is told, counted and started again, and takes nothing else with it.

What another member sends or writes must never end an agent; a defect that lets it end a part costs that part a pause.
The pauses grow, so that a part that fails at once each time does not keep the server busy.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from rackwright.mesh.log import Log
from rackwright.mesh.metrics import Metrics

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
WELL_SECONDS = 60.0
"""A part that has run for so long since it failed is well again."""
MAX_WHY = 300

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Failures:
    """How often a part has failed, and how it was the last time."""

    count: int
    why: str
    at: float


class Spawner(Protocol):
    """What a part needs to have something done beside it. `Supervisor` is one."""

    def once(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something that is done once. If it fails, that is told."""

    def report(self, part: str, problem: BaseException) -> None:
        """A part has failed, here or wherever it was noticed."""


class Supervisor:
    def __init__(self, log: Log, metrics: Metrics) -> None:
        self.log, self.metrics = log, metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, Failures] = {}

    def keep(self, part: str, work: Work) -> None:
        """Run a part until the end, and start it again whenever it fails."""
        self._hold(part, self._kept(part, work))

    def once(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something that is done once. If it fails, that is told."""
        self._hold(part, work)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def report(self, part: str, problem: BaseException) -> None:
        """A part has failed, here or wherever it was noticed."""
        before = self._failures.get(part)
        why = f"{type(problem).__name__}: {problem}"[:MAX_WHY]
        self._failures[part] = Failures(before.count + 1 if before else 1, why, time.monotonic())
        self.metrics.part_failures.labels(part).inc()
        self.log.failed(part, why=why, where=_place(problem))

    def failing(self) -> dict[str, str]:
        """The parts that failed a short while ago, each with the reason."""
        now = time.monotonic()
        return {part: held.why for part, held in self._failures.items() if now - held.at < WELL_SECONDS}

    def _hold(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(part, done))

    def _ended(self, part: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.report(part, problem)

    async def _kept(self, part: str, work: Work) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await work()
                return
            except Exception as problem:  # noqa: BLE001 - told, counted and shown; the part is started again
                self.report(part, problem)
            pause = FIRST_PAUSE if time.monotonic() - began > WELL_SECONDS else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)


def _place(problem: BaseException) -> str:
    """Where in the code it was raised, for who mends it."""
    trace, place = problem.__traceback__, ""
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
