"""Seeing for oneself that a node is up: by its probe, with what is found written down."""

import asyncio

from rackwright.annealer.installs import Reach, hammer_node
from rackwright.domain.errors import NotFound
from rackwright.hammers.base import HammerFailed, HammerNode, NowhereToLook, Seen
from rackwright.hammers.ssh import SshHammer
from rackwright.reach.ssh_connections import NotLetIn, NotTried, Unreachable
from rackwright.store.machines.registration import record_first_boot
from rackwright.store.store import Store

ACTOR = "watch"
SECONDS_TO_ANSWER = 20.0
"""For all of it: to let the server in, to start a command, and to print what it prints."""


class Sight:
    """`own_node` is the server's own host, which needs no look."""

    def __init__(self, store: Store, reach: Reach, own_node: int | None = None) -> None:
        self._store = store
        self._reach = reach
        self._own_node = own_node

    async def look(self, node_id: int) -> bool:
        """See that a node is up; whether over SSH. What it has booted is noted if nobody knew it."""
        if node_id == self._own_node:
            return False
        try:
            async with self._store.read() as session:
                node = await hammer_node(session, node_id)
            seen = await look_at(self._reach, node)
        except NotFound as error:
            raise Unreachable(error.message) from None
        except HammerFailed as error:
            raise _unreachable(error) from error
        await self._store.change(lambda session: record_first_boot(session, node_id, seen.boot_id), actor=ACTOR)
        return isinstance(self._reach.probe(node), SshHammer)


def _unreachable(error: HammerFailed) -> Unreachable:
    kind = NotLetIn if error.answers else NotTried if isinstance(error, NowhereToLook) else Unreachable
    return kind(str(error))


async def look_at(reach: Reach, node: HammerNode) -> Seen:
    """What the node has booted, within a time."""
    try:
        async with asyncio.timeout(SECONDS_TO_ANSWER):
            return await reach.probe(node).look(node)
    except TimeoutError:
        raise HammerFailed(f"nothing was heard within {SECONDS_TO_ANSWER:g} s") from None
