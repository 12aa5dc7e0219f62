"""Power nodes down that have nothing left to do, and up again when they have. Any server does it."""

import asyncio
import logging

from rackwright.annealer.installs import Reach, read_hammer_node
from rackwright.annealer.loop import Loop
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.power import Sleep
from rackwright.hammers.base import Hammer, HammerFailed, HammerNode, Power
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.machines import power_saving
from rackwright.store.machines.power_saving import PowerAction
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "powersave"


class PowerSaver:
    """Switches nodes off and on until cancelled."""

    def __init__(
        self, store: Store, reach: Reach, tick: float = 5.0, grace: float = power_saving.SHUTDOWN_SECONDS
    ) -> None:
        self.store = store
        self.reach = reach
        self.tick = tick
        self.grace = grace
        """Seconds that a system has to shut down by itself."""

    async def run(self) -> None:
        loop = Loop(self.store, tick=self.tick, purpose="look for nodes to power up or down")
        async with asyncio.TaskGroup() as group:

            async def look_and_act() -> None:
                for action in await self.look():
                    group.create_task(self.act(action))

            await loop.run(look_and_act)

    async def look(self) -> list[PowerAction]:
        """Decide which nodes sleep and which wake, and return what is to be switched now."""

        async def work(session: Session) -> list[PowerAction]:
            await power_saving.update_sleep_states(session)
            return await power_saving.select_due_power_actions(session)

        return await self.store.change(work, actor=ACTOR)

    async def act(self, action: PowerAction) -> None:
        """Switch one node. If that fails, it is due again."""
        try:
            await self._switch(action)
        except HammerFailed as error:
            log.warning("cannot switch the power of node %s, trying again: %s", action.node_id, error)
        except RackwrightError as error:
            log.warning("switching the power of node %s is moot: %s", action.node_id, error.message)
        except DATABASE_TROUBLE as error:
            log.warning("cannot record the power of node %s: %s", action.node_id, first_line(error))
        except Exception:  # whatever this machine answered, the others are switched as well
            log.exception("switching the power of node %s broke; please report this", action.node_id)

    async def _switch(self, action: PowerAction) -> None:
        async with self.store.read() as session:
            node = await read_hammer_node(session, action.node_id)
            if not await power_saving.is_still_due(session, action):
                return
        hammer = self.reach.hammer(node)
        if action.sleep is Sleep.WAKING:
            await hammer.on(node)  # its next boot report says that it is up
            return
        await self._put_to_sleep(hammer, node)
        if await hammer.status(node) is Power.OFF:
            await self.store.change(lambda session: power_saving.record_asleep(session, node.id), actor=ACTOR)

    async def _put_to_sleep(self, hammer: Hammer, node: HammerNode) -> None:
        """Have the system shut down by itself; cut its power if the hammer cannot ask for it, or it takes too long."""
        async with self.store.read() as session:
            seconds_since_request = await power_saving.read_shutdown_seconds(session, node.id)
        if seconds_since_request is None and await hammer.shut_down(node):
            await self.store.change(lambda session: power_saving.record_shutdown_request(session, node.id), actor=ACTOR)
            return
        if seconds_since_request is not None and seconds_since_request < self.grace:
            return
        await hammer.off(node)
        waited = None if seconds_since_request is None else round(seconds_since_request)
        await self.store.change(lambda session: power_saving.record_power_cut(session, node.id, waited), actor=ACTOR)
