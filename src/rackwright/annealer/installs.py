"""Advance install attempts: decide in the database what is due, then reboot or probe machines. Any server does it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.annealer.first_boot import Delivery, FirstBoots
from rackwright.annealer.loop import BACK_OFF, Loop
from rackwright.domain.attributes import merge
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.install import Act
from rackwright.hammers.base import BootDevice, ControllerUnreachable, Hammer, HammerFailed, HammerNode, Probe
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
    cloud_init: Delivery | None = None
    """None: this server's machines have no cloud-init."""


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
        self._first_boots = None if reach.cloud_init is None else FirstBoots(store, reach.cloud_init, ACTOR)
        self._out_of_reach: dict[int, float] = {}
        """The nodes whose controllers did not answer this server, each with the time until which it leaves them to
        other servers: a controller may be on a network that only some servers are on."""

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
            return await install_attempts.due_actions(session, self.lease, self._left_to_others())

        return await self.store.change(work, actor=ACTOR, lock=INSTALL_LOCK)

    def _left_to_others(self) -> list[int]:
        now = time.monotonic()
        self._out_of_reach = {node_id: until for node_id, until in self._out_of_reach.items() if until > now}
        return [*self._out_of_reach]

    async def act(self, action: DueAction) -> None:
        """Do one action to a machine. An action that fails is due again, until the attempt's deadline."""
        try:
            async with self.store.read() as session:
                node = await read_hammer_node(session, action.node_id)
            if action.act is Act.REBOOT:
                await self._reboot(action, node)
            else:
                await self._probe(action, node)
        except ControllerUnreachable as error:
            log.warning("%s of node %s is left to other servers for a while: %s", action.act, action.node_id, error)
            self._out_of_reach[action.node_id] = time.monotonic() + self.lease
            await self._release(action)
        except HammerFailed as error:
            log.warning("%s of node %s failed, trying again: %s", action.act, action.node_id, error)
            if action.act is Act.PROBE:
                # A probe does no harm, and a system that has just come up may refuse one. A reboot may have been done
                # although it failed, so it waits for its lease.
                await self._release(action)
        except RackwrightError as error:
            log.warning("%s of node %s is moot: %s", action.act, action.node_id, error.message)
        except DATABASE_TROUBLE as error:
            log.warning("cannot record %s of node %s: %s", action.act, action.node_id, first_line(error))
        except Exception:  # whatever this machine answered, the installs of others go on
            log.exception("%s of node %s broke; please report this", action.act, action.node_id)

    async def _release(self, action: DueAction) -> None:
        """Have an action done again at the next look, by any server that takes it."""
        with contextlib.suppress(*DATABASE_TROUBLE):
            await self.store.change(lambda session: install_attempts.release_action(session, action), actor=ACTOR)

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
        if self._first_boots is not None:
            first_boot = await self._first_boots.read(action, node.name)
            if first_boot is not None and not ok:
                # Its user-data may have rebooted it. It reports that boot by itself, and is asked again then.
                raise HammerFailed(f"{node.name} runs boot {seen.boot_id}, but reported {expected}")
            if first_boot is not None and not await self._first_boots.advance(action, first_boot):
                await self._release(action)
                return
        error = "" if ok else f"it runs boot {seen.boot_id}, but reported {expected}"
        await self.store.change(
            lambda session: install_attempts.record_probe(session, action.attempt_id, ok=ok, error=error), actor=ACTOR
        )
