"""The runner that carries out the checks of `health_checks.py` on time and tells its owner when a report changed."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable

from rackwright.mesh.health.health_checks import Check, CheckReport, CheckResult, Schedule, pack_reports
from rackwright.mesh.health.health_probes import Probe, build_probe


class HealthRunner:
    """A runner of checks. In `async with HealthRunner(checks, changed)` checks run until the block ends, none longer.

    `changed` is called with each new report; `packed()` returns all reports in the gossip format. `own` are checks
    that come with their probe.
    """

    def __init__(
        self, checks: Iterable[Check], changed: Callable[[CheckReport], None], own: Iterable[tuple[Check, Probe]] = ()
    ) -> None:
        declared, own = list(checks), list(own)
        self._checks = [*declared, *(check for check, _ in own)]
        self._changed = changed
        self._probes: dict[str, Probe] = {check.name: build_probe(check) for check in declared}
        self._probes |= {check.name: probe for check, probe in own}
        self._schedule = Schedule((), 0.0)
        self._wake = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "HealthRunner":
        self._schedule = Schedule(self._checks, _now())
        self._loop_task = asyncio.create_task(self._run_loop())
        return self

    async def __aexit__(self, *reason: object) -> None:
        assert self._loop_task is not None
        tasks = [self._loop_task, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def reports(self) -> list[CheckReport]:
        return self._schedule.reports()

    def packed(self) -> bytes:
        return pack_reports(self.reports())

    async def _run_loop(self) -> None:
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
        result = await self._run_probe(check)
        report = self._schedule.record_result(_now(), check.name, result)
        self._wake.set()
        if report is not None:
            self._changed(report)

    async def _run_probe(self, check: Check) -> CheckResult:
        try:
            async with asyncio.timeout(check.timeout):
                return await self._probes[check.name]()
        except TimeoutError:
            return CheckResult(False, f"no answer in {check.timeout:g} s")
        except Exception as problem:  # noqa: BLE001 - a failed result; without a result the check would never be due again
            return CheckResult(False, f"{type(problem).__name__}: {problem}")


def _now() -> float:
    return asyncio.get_running_loop().time()
