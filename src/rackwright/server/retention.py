"""Retention: deletes events, runs and other rows that are older than the settings say, a batch at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from rackwright.annealer.loop import Loop
from rackwright.store.db.retention import FORGET_SQL, forget, forget_runs
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import forget_events
from rackwright.store.events.repeated_requests import KEPT_SECONDS
from rackwright.store.store import Store

ACTOR = "retention"
EVERY = 600.0
BATCH = 5000
PAUSE = 0.1
"""Seconds between two batches, so that other work goes first."""


@dataclass(frozen=True)
class RetentionPeriods:
    """Seconds for which rows are kept after what they tell of has ended."""

    events: float = 30 * 86400.0
    runs: float = 90 * 86400.0
    """Runs and their logs, installs, hooks that were given up, expired tokens and sessions."""


class Retention:
    """Deletes old rows now and then, until cancelled. Several servers may do so: each takes what the others left."""

    def __init__(self, store: Store, periods: RetentionPeriods, every: float = EVERY) -> None:
        self.store = store
        self.periods = periods
        self.every = every

    async def run(self) -> None:
        await Loop(self.store, tick=self.every, purpose="forget what is old", at_start=False).run(self.forget)

    async def forget(self) -> None:
        """Delete all that is too old now."""
        await self._repeat(lambda session: forget_events(session, self.periods.events, BATCH))
        for table in FORGET_SQL:
            seconds = KEPT_SECONDS if table == "kept_answers" else self.periods.runs
            await self._repeat(partial(forget, table=table, keep=seconds, batch=BATCH))
        await self._forget_runs()

    async def _repeat(self, delete_batch: Callable[[Session], Awaitable[int]]) -> None:
        deleted = 1
        while deleted:
            deleted = await self.store.change(delete_batch, actor=ACTOR)
            await asyncio.sleep(PAUSE)

    async def _forget_runs(self) -> None:
        after: int | None = 0
        while after is not None:
            batch = partial(forget_runs, keep=self.periods.runs, after=after, batch=BATCH)
            _, after = await self.store.change(batch, actor=ACTOR)
            await asyncio.sleep(PAUSE)
