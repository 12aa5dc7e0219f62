"""Check by its probe that a node is up, and store what it has booted."""

import asyncio

from rackwright.annealer.installs import Reach, read_hammer_node
from rackwright.domain.errors import NotFound
from rackwright.hammers.base import BootedSystem, HammerFailed, HammerNode, NoTrustedAddress
from rackwright.hammers.ssh import SshHammer
from rackwright.reach.ssh_connections import NotLetIn, NotTried, Unreachable
from rackwright.store.machines.registration import record_first_boot
from rackwright.store.store import Store

ACTOR = "watch"
PROBE_SECONDS = 20.0
"""For a whole probe: to let the server in, to start a command, and to print its output."""


class ReachabilityCheck:
    """Checks whether nodes are up. `own_node` is the server's own host, which needs no check."""

    def __init__(self, store: Store, reach: Reach, own_node: int | None = None) -> None:
        self._store = store
        self._reach = reach
        self._own_node = own_node

    async def check(self, node_id: int) -> bool:
        """Check that a node is up, and return whether over SSH. What it has booted is stored if that was unknown."""
        if node_id == self._own_node:
            return False
        try:
            async with self._store.read() as session:
                node = await read_hammer_node(session, node_id)
            seen = await probe_node(self._reach, node)
        except NotFound as error:
            raise Unreachable(error.message) from None
        except HammerFailed as error:
            raise _unreachable(error) from error
        await self._store.change(lambda session: record_first_boot(session, node_id, seen.boot_id), actor=ACTOR)
        return isinstance(self._reach.probe(node), SshHammer)


def _unreachable(error: HammerFailed) -> Unreachable:
    kind = NotLetIn if error.answers else NotTried if isinstance(error, NoTrustedAddress) else Unreachable
    return kind(str(error))


async def probe_node(reach: Reach, node: HammerNode) -> BootedSystem:
    """Return what the node has booted; fail if that takes too long."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await reach.probe(node).look(node)
    except TimeoutError:
        raise HammerFailed(f"nothing was heard within {PROBE_SECONDS:g} s") from None
