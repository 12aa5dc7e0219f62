"""Watch machines: find those that have been silent for too long, and those that waited for too long to be accepted.

Sledgehammer reports by itself that it is alive. An installed system is asked, over SSH, what it has booted; so is a
machine that a person added with its address, from the moment it is added.
"""

import asyncio
import logging

from rackwright.annealer.installs import Reach, read_hammer_node
from rackwright.annealer.loop import Loop
from rackwright.annealer.reachability import ACTOR, probe_node
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.install import LOCAL
from rackwright.hammers.base import BootedSystem, HammerFailed
from rackwright.store.db.session import DATABASE_TROUBLE, GraphSession, Session, first_line
from rackwright.store.machines.registration import (
    delete_abandoned_machines,
    mark_silent_machines,
    record_answer,
    record_first_boot,
    record_heartbeat,
    select_machines_to_ask,
    start_silence_clock,
)
from rackwright.store.store import Store

log = logging.getLogger(__name__)

MAX_CONCURRENT_PROBES = 64


class MachineWatch:
    """Watches machines until cancelled."""

    def __init__(self, store: Store, reach: Reach, heartbeat: float) -> None:
        self.store = store
        self.reach = reach
        self.heartbeat = heartbeat

    async def run(self) -> None:
        """Ask machines that are up, and apart from them those that are silent, until cancelled.

        A machine that does not answer is waited for. In one queue, many machines that are off would keep those that are
        up from being asked in time, and these would count as silent, too.
        """
        async with asyncio.TaskGroup() as group:
            for work in (self._ask_living, self._ask_silent):
                loop = Loop(self.store, tick=self.heartbeat, purpose="look after machines", at_start=False)
                group.create_task(loop.run(work))

    async def _ask_living(self) -> None:
        """Ask the machines that are up, then find the silent ones: only a machine that was asked can be silent."""
        await self.ask(alive=True)
        await self.find_silent()

    async def _ask_silent(self) -> None:
        await self.ask(alive=False)

    async def find_silent(self) -> None:
        async def work(session: GraphSession) -> None:
            await start_silence_clock(session)
            for node_id in await mark_silent_machines(session, self.heartbeat):
                log.info("node %s is silent", node_id)
            await delete_abandoned_machines(session)

        await self.store.change_graph(work, actor=ACTOR)

    async def ask(self, *, alive: bool) -> None:
        """Ask installed systems that did not report for a while: those that are up, or those that are silent."""
        async with self.store.read() as session:
            node_ids = await select_machines_to_ask(session, alive=alive)
        permits = asyncio.Semaphore(MAX_CONCURRENT_PROBES)

        async def ask_within_limit(node_id: int) -> None:
            async with permits:
                await self._ask_node(node_id)

        await asyncio.gather(*(ask_within_limit(node_id) for node_id in node_ids))

    async def _ask_node(self, node_id: int) -> None:
        """Ask one machine, and record its answer. Whatever it answers, the others are asked as well."""
        try:
            async with self.store.read() as session:
                node = await read_hammer_node(session, node_id)
            seen = await probe_node(self.reach, node)
            await self.store.change(lambda session: self._record_answer(session, node.id, seen), actor=ACTOR)
        except (HammerFailed, RackwrightError) as error:
            log.info("node %s was asked and did not answer: %s", node_id, error)
            if isinstance(error, HammerFailed) and error.answers:
                await self.store.change(lambda session: record_answer(session, node_id), actor=ACTOR)
        except DATABASE_TROUBLE as error:
            log.warning("cannot record what node %s answered: %s", node_id, first_line(error))
        except Exception:
            log.exception("asking node %s broke; please report this", node_id)

    async def _record_answer(self, session: Session, node_id: int, seen: BootedSystem) -> None:
        await record_first_boot(session, node_id, seen.boot_id)
        await record_heartbeat(session, node_id, seen.boot_id, LOCAL)
