"""The annealer: passes over the graph for as long as the server lives.

A pass is one transaction: settle what finished, claim what can start. It runs when there is a reason (work appeared,
a run ended) and on a tick, so that a lost wake-up costs at most one tick. Runs execute as tasks of this process under
a lease; what another process, or this one after a pause, lost the lease of is refused when it comes to settle.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass

from rackwright.annealer.logs import RunLogs
from rackwright.annealer.loop import AT_ONCE, Loop
from rackwright.annealer.run_cap import CapControl
from rackwright.annealer.step import finished, outcome_of
from rackwright.domain.foreign import storable_text
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.db.session import DATABASE_TROUBLE, UNREACHABLE, Session, first_line
from rackwright.store.db.stalled_transactions import STALL_SECONDS, end_stalled
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, ClaimResult, claim_runs
from rackwright.store.runs.instant_runs import InstantJigs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.runs.slots import WORK_CHANNEL
from rackwright.store.runs.upkeep import Upkeep
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "annealer"


@dataclass(frozen=True)
class Pace:
    """How often things happen, in seconds."""

    tick: float = 5.0
    log_flush: float = 0.2
    back_off: float = 0.5
    """After the database did not answer."""


@dataclass
class Counters:
    """What the annealer did since it started; for metrics and benchmarks."""

    passes: int = 0
    started: int = 0
    settled: int = 0
    refused: int = 0
    """Results that came too late to count."""
    failed: int = 0
    taken_over: int = 0


class Annealer:
    """Runs until `stop`. One a server process; several processes may work on one database."""

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
        """When the leases were renewed last."""
        self._passes = Loop(
            store,
            (WORK_CHANNEL, run_lifecycle.CANCEL_CHANNEL),
            purpose="anneal",
            back_off=self.pace.back_off,
            on_notice=self._cancel_run,
        )

    async def run(self) -> None:
        """Anneal until stopped. Runs that are not over then are handed back."""
        self._renewed = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                aside = [group.create_task(work) for work in self._aside()]
                await self._passes.run(self._pass_or_settle_each)
                for task in aside:
                    task.cancel()
        finally:
            await self._hand_back()

    def stop(self) -> None:
        self._passes.stop()

    def wake(self) -> None:
        """There may be something to do."""
        self._passes.wake()

    # --- passes

    async def _pass_or_settle_each(self) -> float | None:
        """Make one pass. If the database refuses it, a result may be why, so settle them apart and try again later."""
        try:
            return AT_ONCE if await self._one_pass() else None
        except UNREACHABLE:
            raise
        except DATABASE_TROUBLE:
            await self._settle_each()
            raise

    async def _one_pass(self) -> bool:
        """Settle what finished and start what can; whether another pass may find more at once."""
        done, self._finished = self._finished, []
        said: dict[int, list[str]] = {}
        try:
            settled, claimed = await self.store.change(
                lambda session: self._work(session, done, said), actor=ACTOR, lock=CAP_LOCK
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
            sum(not one.ok and not one.accepted for one in done),
            busy=bool(claimed.started or self._tasks),
        )
        for run_id, texts in said.items():
            with self.logs.writer(run_id) as run_log:
                run_log("".join(texts))
        for run in claimed.started:
            if run.kind in self.instant:
                await self._execute(run)
            else:
                self._start(run)
        return claimed.more or bool(self._finished)

    async def _settle_each(self) -> None:
        """Settle what finished one by one: a result that the database refuses fails its own run, and no other."""
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
            await self.store.change(lambda session: settle_runs(session, [result]), actor=ACTOR, lock=CAP_LOCK)
        except UNREACHABLE:
            raise
        except DATABASE_TROUBLE as error:
            log.error("the result of run %s cannot be stored: %s", result.run_id, first_line(error))
            why = storable_text(f"Its result cannot be stored: {first_line(error)}")
            failed = FinishedRun(result.run_id, ok=False, error=why)
            await self.store.change(lambda session: settle_runs(session, [failed]), actor=ACTOR, lock=CAP_LOCK)

    async def _work(
        self, session: Session, done: list[FinishedRun], said: dict[int, list[str]]
    ) -> tuple[list[int], ClaimResult]:
        settled = await settle_runs(session, done)
        if self._passes.stopping:
            return settled, ClaimResult([], [])
        said.clear()  # of an earlier try of this transaction, whose runs never were

        async def at_once(run: Run) -> Outcome:
            return await outcome_of(self.store, self.jigs, run, said.setdefault(run.id, []).append)

        limit = await self.cap.limit(session)
        return settled, await claim_runs(session, self.claimant, limit, instant=InstantJigs(self.instant, at_once))

    # --- runs

    def _start(self, run: Run) -> None:
        task = asyncio.create_task(self._execute(run), name=f"run {run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))

    async def _execute(self, run: Run) -> None:
        with self.logs.writer(run.id) as run_log:
            outcome = await outcome_of(self.store, self.jigs, run, run_log)
        self._finished.append(finished(run, outcome))
        self.wake()

    async def _hand_back(self) -> None:
        """Cancel what still runs and give it up, so that another server need not wait for the lease."""
        tasks = list(self._tasks.items())
        for _, task in tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        with contextlib.suppress(*DATABASE_TROUBLE):
            await self.store.change(lambda session: settle_runs(session, self._finished), actor=ACTOR)
            await self.logs.flush()
            await self.store.change(
                lambda session: run_lifecycle.release_runs(session, [id for id, _ in tasks]), actor=ACTOR
            )

    def _cancel_run(self, channel: str, payload: str) -> None:
        """Stop the run that PostgreSQL says was cancelled."""
        if channel == run_lifecycle.CANCEL_CHANNEL and payload.isdecimal():
            self._cancel([int(payload)])

    def _cancel(self, ids: Iterable[int]) -> None:
        """Stop those of these runs that are this process's."""
        for id in ids:
            task = self._tasks.get(id)
            if task is not None:
                task.cancel()

    # --- aside from the passes

    def _aside(self) -> list[Coroutine[None, None, None]]:
        """What is done beside the passes until cancelled; each apart, as the others may be waiting for just that."""
        store, tick, lease = self.store, self.pace.tick, self.claimant.lease
        stalled = "look for transactions that stand still"
        return [
            Loop(store, tick=tick, purpose="look after runs, counters and slots").run(self._keep_up),
            Loop(store, tick=lease / 3, purpose="renew leases", at_start=False).run(self._renew_leases),
            Loop(store, tick=STALL_SECONDS / 3, purpose=stalled, at_start=False).run(self._end_stalled),
            self.logs.flush_for_ever(self.pace.log_flush),
        ]

    async def _keep_up(self) -> None:
        """Now and then: takeovers, deadlines, retries, and a look at whether counters and slots are true."""
        try:
            done = await self.store.change(self.upkeep.tick, actor=ACTOR)
        finally:
            self.wake()  # the passes have no tick but this
        self.counters.taken_over += done.taken_over
        if done.repaired:
            log.error("repaired %d counters or slots that were wrong; please report this", done.repaired)

    async def _renew_leases(self) -> None:
        """Renew what this process holds. What it no longer holds, it stops."""
        lease = self.claimant.lease
        before = time.monotonic()
        mine = set(self._tasks)
        try:
            held = await self.store.change(
                lambda session: run_lifecycle.renew_leases(session, self.claimant.worker, lease), actor=ACTOR
            )
        except DATABASE_TROUBLE:
            if time.monotonic() - self._renewed >= lease:
                self._cancel(mine)
            raise
        self._renewed = before
        self._cancel(mine - held)

    async def _end_stalled(self) -> None:
        """Free what a server holds that stands still."""
        ended = await self.store.change(end_stalled, actor=ACTOR)
        if ended:
            log.warning("ended %d transactions of servers that stood still in the middle of them", ended)
