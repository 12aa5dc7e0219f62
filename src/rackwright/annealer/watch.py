"""Watching over machines: who has been silent for too long, and who waited for too long to be let in."""

import asyncio
import logging

from rackwright.store.machines import forget_waiting, miss_heartbeats
from rackwright.store.session import DATABASE_TROUBLE, Session, Store, first_line

log = logging.getLogger(__name__)

ACTOR = "watch"


class Watch:
    """Runs until cancelled."""

    def __init__(self, store: Store, heartbeat: float) -> None:
        self.store = store
        self.heartbeat = heartbeat

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat)
            try:
                await self.look()
            except DATABASE_TROUBLE as error:
                log.warning("cannot look after machines: %s", first_line(error))

    async def look(self) -> None:
        async def work(session: Session) -> None:
            for node_id in await miss_heartbeats(session, self.heartbeat):
                log.info("node %s is silent", node_id)
            await forget_waiting(session)

        await self.store.change(work, actor=ACTOR, graph=True)
