"""Forgetting: events that are older than what the settings say go, a batch at a time."""

import asyncio
import logging

from rackwright.store.events import forget_events
from rackwright.store.session import DATABASE_TROUBLE, Store, first_line

log = logging.getLogger(__name__)

EVERY = 600.0
BATCH = 5000


class Retention:
    """Looks now and then, until cancelled. Several servers may: each takes what the others left."""

    def __init__(self, store: Store, keep: float, every: float = EVERY) -> None:
        self.store = store
        self.keep = keep
        self.every = every

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.every)
            try:
                await self.forget()
            except DATABASE_TROUBLE as error:
                log.warning("old events stay for now: the database does not answer: %s", first_line(error))

    async def forget(self) -> None:
        """All that is too old now."""
        while True:
            gone = await self.store.change(lambda session: forget_events(session, self.keep, BATCH), actor="retention")
            if not gone:
                return
            await asyncio.sleep(0.1)  # what else there is to do goes first
