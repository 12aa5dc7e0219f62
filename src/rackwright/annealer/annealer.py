"""The annealer: it makes passes over the graph, and executes runs, for as long as the server lives.

A pass is one transaction: settle the runs that finished, claim those that can start. A pass is made when there is a
reason (work appeared, a run ended) and on a tick, so that a lost wake-up costs at most one tick. Runs execute as tasks
of this process under a lease; the result of a run whose lease was lost, by another process or by this one after a
pause, is refused when it is settled.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass

from rackwright.annealer.logs import RunLogs, settle_with_logs
from rackwright.annealer.loop import AT_ONCE, Loop
from rackwright.annealer.run_cap import CapControl
from rackwright.annealer.step import execute_run, finished_run
from rackwright.domain.foreign import storable_text
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import DATABASE_TROUBLE, UNREACHABLE, Session, first_line
from rackwright.store.db.stalled_transactions import STALL_SECONDS, end_stalled
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, ClaimResult, claim_runs
from rackwright.store.runs.instant_runs import InstantJigs
from rackwright.store.runs.run_logs import append_logs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.runs.slots import WORK_CHANNEL
from rackwright.store.runs.upkeep import Upkeep
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "annealer"


@dataclass(frozen=True)
class Pace:
    """How often the annealer looks, writes logs and retries, in seconds."""

    tick: float = 5.0
    log_flush: float = 0.2
    back_off: float = 0.5
    """After the database did not answer."""


@dataclass
class Counters:
    """Counts of what the annealer did since it started; for metrics and benchmarks."""

    passes: int = 0
    started: int = 0
    settled: int = 0
    refused: int = 0
    """Results that came too late to count."""
    failed: int = 0
    taken_over: int = 0


class Annealer:
    """Makes passes until `stop`. One a server process; several processes may work on one database."""

    def __init__(self, store: Store, jigs: Mapping[str, Jig], claimant: Claimant, pace: Pace | None = None) -> None:
        self.store = store
        self.jigs = jigs
        self.claimant = claimant
        self.pace = pace or Pace()
        self.cap = CapControl()
        self.logs = RunLogs(store)
        self.counters = Counters()
        self.upkeep = Upkeep()
        self.instant = frozenset(kind for kind, jig in jigs.items() if jig.instant)
        self._finished: list[FinishedRun] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._renewed = 0.0
        """The time at which the leases were renewed last."""
        self._passes = Loop(
            store,
            (WORK_CHANNEL, run_lifecycle.CANCEL_CHANNEL),
            purpose="anneal",
            back_off=self.pace.back_off,
            on_notice=self._cancel_run,
        )

    async def run(self) -> None:
        """Make passes until stopped. Runs that are not over then are handed back."""
        self._renewed = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                side_tasks = [group.create_task(work) for work in self._side_work()]
                await self._passes.run(self._pass_or_settle_each)
                for task in side_tasks:
                    task.cancel()
        finally:
            await self._hand_back()

    def stop(self) -> None:
        self._passes.stop()

    def wake(self) -> None:
        """Have a pass made soon, because there may be something to do."""
        self._passes.wake()

    # --- passes

    async def _pass_or_settle_each(self) -> float | None:
        """Make one pass. If the database refuses it, one result may be why: settle each apart, and try again later."""
        try:
            return AT_ONCE if await self._make_pass() else None
        except UNREACHABLE:
            raise
        except DATABASE_TROUBLE:
            await self._settle_each()
            raise

    async def _make_pass(self) -> bool:
        """Settle finished runs and start those that can; return whether another pass may find more at once."""
        done, self._finished = self._finished, []
        try:
            async with self.logs.rest_of(result.run_id for result in done) as texts:
                settled, claimed = await self.store.change(
                    lambda session: self._work(session, done, texts), actor=ACTOR, lock=CAP_LOCK
                )
        except BaseException:
            self._finished = done + self._finished
            raise
        self.counters.passes += 1
        self.counters.started += claimed.ended + len(claimed.started)
        self.counters.settled += claimed.ended + len(settled)
        self.counters.refused += len(done) - len(settled)
        self.cap.observe(
            claimed.ended + len(settled),
            sum(not result.ok and not result.accepted for result in done),
            busy=bool(claimed.started or self._tasks),
        )
        for run in claimed.started:
            if run.kind in self.instant:
                await self._execute(run)
            else:
                self._start(run)
        return claimed.more or bool(self._finished)

    async def _settle_each(self) -> None:
        """Settle finished runs one by one: a result that the database refuses fails its own run, and no other."""
        done, self._finished = self._finished, []
        for number, result in enumerate(done):
            try:
                await self._settle_alone(result)
            except DATABASE_TROUBLE as error:
                log.warning("results wait for the database: %s", first_line(error))
                self._finished = done[number:] + self._finished
                return

    async def _settle_alone(self, result: FinishedRun) -> None:
        try:
            async with self.logs.rest_of([result.run_id]) as texts:
                await self.store.change(
                    lambda session: settle_with_logs(session, [result], texts), actor=ACTOR, lock=CAP_LOCK
                )
        except UNREACHABLE:
            raise
        except DATABASE_TROUBLE as error:
            log.error("the result of run %s cannot be stored: %s", result.run_id, first_line(error))
            why = storable_text(f"Its result cannot be stored: {first_line(error)}")
            failed = FinishedRun(result.run_id, ok=False, error=why)
            await self.store.change(lambda session: settle_runs(session, [failed]), actor=ACTOR, lock=CAP_LOCK)

    async def _work(
        self, session: Session, done: list[FinishedRun], texts: list[tuple[int, str]]
    ) -> tuple[list[int], ClaimResult]:
        settled = await settle_with_logs(session, done, texts)
        if self._passes.stopping:
            return settled, ClaimResult([], [])
        output_by_run: dict[int, list[str]] = {}

        async def run_now(run: Run) -> Outcome:
            return await execute_run(self.store, self.jigs, run, output_by_run.setdefault(run.id, []).append)

        limit = await self.cap.limit(session)
        claimed = await claim_runs(session, self.claimant, limit, instant=InstantJigs(self.instant, run_now))
        outputs = [(run_id, storable_text("".join(parts))) for run_id, parts in output_by_run.items() if parts]
        await append_logs(session, outputs)
        return settled, claimed

    # --- runs

    def _start(self, run: Run) -> None:
        task = asyncio.create_task(self._execute(run), name=f"run {run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))

    async def _execute(self, run: Run) -> None:
        with self.logs.writer(run.id) as run_log:
            outcome = await execute_run(self.store, self.jigs, run, run_log)
        self._finished.append(finished_run(run, outcome))
        self.wake()

    async def _hand_back(self) -> None:
        """Cancel the runs that still execute and give them up, so that another server need not wait for the lease."""
        tasks = list(self._tasks.items())
        for _, task in tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        with contextlib.suppress(*DATABASE_TROUBLE):
            async with self.logs.rest_of(result.run_id for result in self._finished) as texts:
                await self.store.change(lambda session: settle_with_logs(session, self._finished, texts), actor=ACTOR)
            await self.logs.flush()
            await self.store.change(
                lambda session: run_lifecycle.release_runs(session, [id for id, _ in tasks]), actor=ACTOR
            )

    def _cancel_run(self, channel: str, payload: str) -> None:
        """Stop the run that a notification of PostgreSQL says was cancelled."""
        if channel == run_lifecycle.CANCEL_CHANNEL and payload.isdecimal():
            self._cancel([int(payload)])

    def _cancel(self, ids: Iterable[int]) -> None:
        """Stop those of these runs that this process executes."""
        for id in ids:
            task = self._tasks.get(id)
            if task is not None:
                task.cancel()

    # --- work beside the passes

    def _side_work(self) -> list[Coroutine[None, None, None]]:
        """Return what is done beside the passes until cancelled; each apart, as others may be waiting for just that."""
        store, tick, lease = self.store, self.pace.tick, self.claimant.lease
        stalled = "look for transactions that stand still"
        return [
            Loop(store, tick=tick, purpose="look after runs, counters and slots").run(self._keep_up),
            Loop(store, tick=lease / 3, purpose="renew leases", at_start=False).run(self._renew_leases),
            Loop(store, tick=STALL_SECONDS / 3, purpose=stalled, at_start=False).run(self._end_stalled),
            self.logs.flush_for_ever(self.pace.log_flush),
        ]

    async def _keep_up(self) -> None:
        """Do the upkeep: takeovers, deadlines, retries, and a check that counters and slots are true."""
        try:
            done = await self.store.change(self.upkeep.tick, actor=ACTOR)
        finally:
            self.wake()  # the passes have no tick but this
        self.counters.taken_over += done.taken_over
        if done.repaired:
            log.error("repaired %d counters or slots that were wrong; please report this", done.repaired)

    async def _renew_leases(self) -> None:
        """Renew the leases of this process, and stop the runs whose lease it no longer has."""
        lease = self.claimant.lease
        before = time.monotonic()
        own_run_ids = set(self._tasks)
        try:
            held = await self.store.change(
                lambda session: run_lifecycle.renew_leases(session, self.claimant.worker, lease), actor=ACTOR
            )
        except DATABASE_TROUBLE:
            if time.monotonic() - self._renewed >= lease:
                self._cancel(own_run_ids)
            raise
        self._renewed = before
        self._cancel(own_run_ids - held)

    async def _end_stalled(self) -> None:
        """End the transactions of servers that stand still, which frees their locks."""
        ended = await self.store.change(end_stalled, actor=ACTOR)
        if ended:
            log.warning("ended %d transactions of servers that stood still in the middle of them", ended)
