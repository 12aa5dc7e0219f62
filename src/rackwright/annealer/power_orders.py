"""Orders by hand for machines' controllers: carried out by the server that is asked, or by one that reaches them.

Of several servers some may not be on the network of a controller. The one that is asked and gets no answer leaves the
order to the others, and waits for what they say.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rackwright.annealer.installs import Reach, read_hammer_node
from rackwright.annealer.loop import Loop
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.power import PowerOrder
from rackwright.hammers.base import BootDevice, ControllerUnreachable, Hammer, HammerFailed, HammerNode, Power
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.machines import power_orders
from rackwright.store.machines.power_orders import OrderProgress, TakenOrder
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "power orders"
TICK = 5.0
PATIENCE = 4.0
"""Seconds in which some server takes an order, if there is one that has not tried it: notifications are quick."""
PAUSE = 0.25


class PowerOrders:
    """The orders of one server: those it is asked for, and those that it takes over from others."""

    def __init__(self, store: Store, reach: Reach, server: str, *, patience: float = PATIENCE) -> None:
        self._store = store
        self.reach = reach
        self._server = server
        """The name of this server, in what people are told."""
        self._patience = patience

    async def carry_out(self, node_id: int, order: PowerOrder) -> Power:
        """Carry out an order, here or on a server that reaches the controller, and return the machine's power then."""
        try:
            return await self._carry_out_here(node_id, order)
        except ControllerUnreachable as error:
            return await self._leave_to_others(node_id, order, str(error))

    async def run(self) -> None:
        """Carry out what other servers could not, until cancelled."""
        loop = Loop(self._store, (power_orders.CHANNEL,), TICK, purpose="take over orders for machines' power")
        async with asyncio.TaskGroup() as group:

            async def take_and_begin() -> None:
                for taken in await self.take():
                    group.create_task(self.work_off(taken))

            await loop.run(take_and_begin)

    async def take(self) -> list[TakenOrder]:
        """Take the orders that this server may be able to carry out."""
        return await self._store.change(
            lambda session: power_orders.take_orders(session, self._server, self._patience), actor=ACTOR
        )

    async def work_off(self, taken: TakenOrder) -> None:
        """Carry out an order that another server could not, and record what came of it."""
        try:
            await self._store.change(await self._try(taken), actor=ACTOR)
        except DATABASE_TROUBLE as error:
            log.warning("cannot record the power of node %s: %s", taken.node_id, first_line(error))
        except Exception:  # whatever this machine answered, the orders for others go on
            log.exception("%s of node %s broke; please report this", taken.order, taken.node_id)

    async def _try(self, taken: TakenOrder) -> Callable[[Session], Awaitable[None]]:
        """Carry out an order here, and return the change that records how it went."""
        try:
            power = await self._carry_out_here(taken.node_id, taken.order)
        except ControllerUnreachable as error:
            reason = str(error)
            return lambda session: power_orders.record_out_of_reach(session, taken.id, self._server, reason)
        except (HammerFailed, RackwrightError) as error:
            reason = str(error)
            return lambda session: power_orders.record_failure(session, taken.id, reason)
        return lambda session: power_orders.record_power(session, taken.id, power)

    async def _carry_out_here(self, node_id: int, order: PowerOrder) -> Power:
        async with self._store.read() as session:
            node = await read_hammer_node(session, node_id)
        hammer = self.reach.hammer(node)
        await _act(hammer, node, order)
        try:
            return await hammer.status(node)
        except ControllerUnreachable as error:
            if order is PowerOrder.STATUS:
                raise
            # Another server would do it a second time.
            raise HammerFailed(f"the order ({order}) was carried out, but then: {error}") from error

    async def _leave_to_others(self, node_id: int, order: PowerOrder, reason: str) -> Power:
        """Have another server carry out an order, and return the power; HammerFailed if none could."""
        id = await self._store.change(
            lambda session: power_orders.place_order(session, node_id, order, self._server, reason), actor=ACTOR
        )
        try:
            progress = await self._wait(id)
        finally:
            await self._store.change(lambda session: power_orders.withdraw_order(session, id), actor=ACTOR)
        if progress.power is not None:
            return Power(progress.power)
        if progress.error is not None:
            raise HammerFailed(progress.error)
        if len(progress.tried) <= 1:
            raise ControllerUnreachable(reason)
        servers = sorted(progress.tried, key=lambda server: (server != self._server, server))
        tried = "; ".join(f"{server}: {progress.tried[server]}" for server in servers)
        raise ControllerUnreachable(f"no server reaches it. {tried}")

    async def _wait(self, id: int) -> OrderProgress:
        """Return what became of an order once it is settled, or no server takes it any more."""
        ends = time.monotonic() + power_orders.TAKEN_SECONDS
        while True:
            async with self._store.read() as session:
                progress = await power_orders.read_progress(session, id)
            settled = progress.power is not None or progress.error is not None
            if settled or (not progress.is_taken and progress.quiet > self._patience):
                return progress
            if time.monotonic() > ends:
                return replace(progress, error="a server took the order, and did not say within 2 minutes how it went")
            await asyncio.sleep(PAUSE)


async def _act(hammer: Hammer, node: HammerNode, order: PowerOrder) -> None:
    """Have a controller do what is ordered; a look at the power changes nothing."""
    if order in (PowerOrder.OFF, PowerOrder.CYCLE):
        await hammer.off(node)
    if order is PowerOrder.ON:
        await hammer.on(node)
    if order is PowerOrder.CYCLE:
        try:
            await hammer.on(node)
        except ControllerUnreachable as error:  # another server would switch it off a second time
            raise HammerFailed(f"{node.name} was switched off, but then: {error}") from error
    if order is PowerOrder.RESET:
        await hammer.reset(node)
    if order in (PowerOrder.BOOT_NETWORK, PowerOrder.BOOT_DISK):
        await hammer.boot_device(node, BootDevice.NETWORK if order is PowerOrder.BOOT_NETWORK else BootDevice.DISK)
