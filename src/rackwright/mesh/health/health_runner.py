"""Software health, the half that acts: runs the checks of `health_checks.py` on time and says when a result changed."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable

from rackwright.mesh.health.health_checks import Check, Outcome, Result, Schedule, pack_results
from rackwright.mesh.health.health_probes import Probe, probe_of


class HealthRunner:
    """`async with HealthRunner(checks, changed)`: checks run until the block ends, and no check outlives it.

    `changed` is told each new result as it comes; `packed()` is all of them, as they travel. `own` are checks that come
    with their probe.
    """

    def __init__(
        self, checks: Iterable[Check], changed: Callable[[Result], None], own: Iterable[tuple[Check, Probe]] = ()
    ) -> None:
        listed, own = list(checks), list(own)
        self._checks = [*listed, *(check for check, _ in own)]
        self._changed = changed
        self._probes: dict[str, Probe] = {check.name: probe_of(check) for check in listed}
        self._probes |= {check.name: probe for check, probe in own}
        self._schedule = Schedule((), 0.0)
        self._wake = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._conductor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "HealthRunner":
        self._schedule = Schedule(self._checks, _now())
        self._conductor = asyncio.create_task(self._conduct())
        return self

    async def __aexit__(self, *reason: object) -> None:
        assert self._conductor is not None
        tasks = [self._conductor, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def results(self) -> list[Result]:
        return self._schedule.results()

    def packed(self) -> bytes:
        return pack_results(self.results())

    async def _conduct(self) -> None:
        while True:
            self._wake.clear()
            for check in self._schedule.due(_now()):
                task = asyncio.create_task(self._run(check))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            wait = self._schedule.next_deadline() - _now()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if math.isinf(wait) else max(wait, 0.0))

    async def _run(self, check: Check) -> None:
        outcome = await self._outcome(check)
        result = self._schedule.finished(_now(), check.name, outcome)
        self._wake.set()
        if result is not None:
            self._changed(result)

    async def _outcome(self, check: Check) -> Outcome:
        try:
            async with asyncio.timeout(check.timeout):
                return await self._probes[check.name]()
        except TimeoutError:
            return Outcome(False, f"no answer in {check.timeout:g} s")
        except Exception as problem:  # noqa: BLE001 - it is the check's outcome; without one it would never be due again
            return Outcome(False, f"{type(problem).__name__}: {problem}")


def _now() -> float:
    return asyncio.get_running_loop().time()
