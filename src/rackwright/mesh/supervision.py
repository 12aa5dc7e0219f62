"""A supervisor that keeps the parts of an agent running: one that fails is logged, counted and started again, alone.

Input from another member must never end an agent; a defect that lets it end a part costs that part a pause.
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
"""Characters of a reason."""

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Failures:
    """How often a part has failed, and why and when the last time."""

    count: int
    why: str
    at: float


class Spawner(Protocol):
    """The port by which a part starts work beside itself. `Supervisor` is one."""

    def once(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something that is done once. If it fails, that is reported."""

    def report(self, part: str, problem: BaseException) -> None:
        """Count and log that a part failed, here or wherever the failure was noticed."""


class Supervisor:
    """Runs the parts of one agent as tasks."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self.log, self.metrics = log, metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, Failures] = {}

    def keep(self, part: str, work: Work) -> None:
        """Run a part until the end, and start it again whenever it fails."""
        self._start(part, self._run_until_done(part, work))

    def once(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something that is done once. If it fails, that is reported."""
        self._start(part, work)

    async def stop(self) -> None:
        """Cancel all parts, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def report(self, part: str, problem: BaseException) -> None:
        """Count and log that a part failed, here or wherever the failure was noticed."""
        before = self._failures.get(part)
        why = f"{type(problem).__name__}: {problem}"[:MAX_WHY]
        self._failures[part] = Failures(before.count + 1 if before else 1, why, time.monotonic())
        self.metrics.part_failures.labels(part).inc()
        self.log.failed(part, why=why, where=_raised_at(problem))

    def failing(self) -> dict[str, str]:
        """Return the parts that failed a short while ago, each with the reason."""
        now = time.monotonic()
        return {part: failures.why for part, failures in self._failures.items() if now - failures.at < WELL_SECONDS}

    def _start(self, part: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(part, done))

    def _ended(self, part: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.report(part, problem)

    async def _run_until_done(self, part: str, work: Work) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await work()
                return
            except Exception as problem:  # noqa: BLE001 - logged, counted and shown; the part is started again
                self.report(part, problem)
            pause = FIRST_PAUSE if time.monotonic() - began > WELL_SECONDS else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)


def _raised_at(problem: BaseException) -> str:
    """Return the file and line in which an exception was raised."""
    trace, location = problem.__traceback__, ""
    while trace is not None:
        location = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return location
