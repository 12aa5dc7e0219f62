"""Advance install attempts: decide in the database what is due, then reboot or probe machines. Any server does it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.annealer.loop import BACK_OFF, Loop
from rackwright.domain.attributes import merge
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.install import Act
from rackwright.hammers.base import BootDevice, Hammer, HammerFailed, HammerNode, Probe
from rackwright.store.db.locks import INSTALL_LOCK
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines import install_attempts
from rackwright.store.machines.boot import INSTALL_CHANNEL
from rackwright.store.machines.install_attempts import DueAction
from rackwright.store.machines.nodes import get_node
from rackwright.store.settings import read_setting
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "installs"


@dataclass(frozen=True)
class Reach:
    """How machines are reached: the hammer and the probe of a node."""

    hammer: Callable[[HammerNode], Hammer]
    probe: Callable[[HammerNode], Probe]


async def read_hammer_node(session: Session, node_id: int) -> HammerNode:
    """Read what hammers and probes need of a node: what was discovered, overridden by what people set, secrets opened.

    Only people set where its controller is: a machine that could set it would have the server connect to any address.
    """
    node = await get_node(session, node_id, EVERYTHING)
    stored = await session.catalogue()
    secret_attribs = stored.catalogue.secret_attribs
    discovered = {name: value for name, value in node.discovery.items() if name != "bmc"}
    settings = merge(discovered, session.store.vault.open_secrets(secret_attribs, node.hint))
    return HammerNode(node.id, node.name, settings, node.discovery.get("bmc"), stored.hammer_priorities)


class InstallAdvancer:
    """Advances all install attempts until cancelled."""

    def __init__(self, store: Store, reach: Reach, tick: float = 5.0, lease: float = 30.0) -> None:
        self.store = store
        self.reach = reach
        self.tick = tick
        self.lease = lease
        """Seconds after which another server does the action that this one had claimed."""

    async def run(self) -> None:
        loop = Loop(self.store, (INSTALL_CHANNEL,), self.tick, purpose="advance installs", back_off=BACK_OFF)
        async with asyncio.TaskGroup() as group:

            async def advance_and_act() -> None:
                for action in await self.advance():
                    group.create_task(self.act(action))

            await loop.run(advance_and_act)

    async def advance(self) -> list[DueAction]:
        """Look once at all open attempts, and return what is to be done to their machines now."""

        async def work(session: Session) -> list[DueAction]:
            limit = await read_setting(session, "max_installs", install_attempts.DEFAULT_MAX_INSTALLS)
            await install_attempts.advance_attempts(session, limit)
            return await install_attempts.due_actions(session, self.lease)

        return await self.store.change(work, actor=ACTOR, lock=INSTALL_LOCK)

    async def act(self, action: DueAction) -> None:
        """Do one action to a machine. An action that fails is due again, until the attempt's deadline."""
        try:
            async with self.store.read() as session:
                node = await read_hammer_node(session, action.node_id)
            if action.act is Act.REBOOT:
                await self._reboot(action, node)
            else:
                await self._probe(action, node)
        except HammerFailed as error:
            log.warning("%s of node %s failed, trying again: %s", action.act, action.node_id, error)
            await self._retry_probe_soon(action)
        except RackwrightError as error:
            log.warning("%s of node %s is moot: %s", action.act, action.node_id, error.message)
        except DATABASE_TROUBLE as error:
            log.warning("cannot record %s of node %s: %s", action.act, action.node_id, first_line(error))
        except Exception:  # whatever this machine answered, the installs of others go on
            log.exception("%s of node %s broke; please report this", action.act, action.node_id)

    async def _retry_probe_soon(self, action: DueAction) -> None:
        """Have a failed probe made again at the next tick.

        A probe does no harm, and a system that has just come up may refuse one. A reboot may have been done although it
        failed, so it waits for its lease.
        """
        if action.act is Act.PROBE:
            with contextlib.suppress(*DATABASE_TROUBLE):
                await self.store.change(
                    lambda session: install_attempts.schedule_probe(session, action.attempt_id), actor=ACTOR
                )

    async def _reboot(self, action: DueAction, node: HammerNode) -> None:
        hammer = self.reach.hammer(node)
        await hammer.boot_device(node, BootDevice.NETWORK)
        due = await self.store.change(
            lambda session: install_attempts.begin_reset(session, action, self.lease), actor=ACTOR
        )
        if not due:
            return
        try:
            async with asyncio.timeout(self.lease):
                await hammer.reset(node)
        except TimeoutError:
            raise HammerFailed(f"the reset of {node.name} took more than {self.lease:g} s") from None
        await self.store.change(lambda session: install_attempts.record_reset(session, action.attempt_id), actor=ACTOR)

    async def _probe(self, action: DueAction, node: HammerNode) -> None:
        seen = await self.reach.probe(node).look(node)
        async with self.store.read() as session:
            expected = (await get_node(session, node.id, EVERYTHING)).boot_id
        ok = seen.boot_id == expected
        error = "" if ok else f"it runs boot {seen.boot_id}, but reported {expected}"
        await self.store.change(
            lambda session: install_attempts.record_probe(session, action.attempt_id, ok=ok, error=error), actor=ACTOR
        )
