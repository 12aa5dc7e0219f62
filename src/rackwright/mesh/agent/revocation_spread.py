"""Spreads the list of revoked members, and applies a newer list: the members on it are disconnected and forgotten.

The list itself is `mesh/identity/revocation.py`; only the CA can sign a newer list.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rackwright.mesh.errors import BadRecords
from rackwright.mesh.identity.authority import Authority
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.identity.server_identity import OwnIdentity, number_of
from rackwright.mesh.log import Log
from rackwright.mesh.metrics import Metrics
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.transport.link import Kind
from rackwright.mesh.transport.transport import Transport

OFFER_SECONDS = 10.0


@dataclass(frozen=True)
class SpreadPorts:
    """What spreading revocations uses of its agent."""

    name: str
    identity: OwnIdentity
    authority: Authority | None
    revocations: RevocationFile
    transport: Transport
    remove: Callable[[str], None]
    """Removes a member from the member table"""
    changed: Callable[[], None]
    """Called when a newer list is in force"""
    end: Callable[[], None]
    """Ends the agent"""
    refusals: Refusals
    metrics: Metrics
    log: Log


class RevocationSpread:
    """The part of an agent that exchanges the revocation list with other members."""

    def __init__(self, ports: SpreadPorts) -> None:
        self._ports, self._revocations = ports, ports.revocations

    async def run(self) -> None:
        """Offer the version of our list now and then, until cancelled.

        Members also compare versions when they connect, so that no member misses a list for long.
        """
        if self._ports.authority:
            self.take(await self._ports.authority.revocations(), self._ports.name)
        while True:
            await asyncio.sleep(OFFER_SECONDS)
            version = self._revocations.current.version.to_bytes(8, "big")
            self._ports.transport.broadcast(Kind.REVOCATIONS_VERSION, version)

    def version_received(self, peer: str, payload: bytes) -> None:
        """Send our list to a peer that has an older version."""
        if int.from_bytes(payload, "big") < self._revocations.current.version:
            self._ports.transport.send_to(peer, Kind.REVOCATIONS, self._revocations.signed)

    def list_received(self, peer: str, payload: bytes) -> None:
        self.take(payload, peer)

    def take_own(self, signed: bytes) -> None:
        """Apply a list that the CA on this server has signed."""
        self.take(signed, self._ports.name)

    def take(self, signed: bytes, source: str) -> None:
        """Apply a newer list: disconnect and forget the members on it, and pass it on."""
        ports, before = self._ports, self._revocations.current
        try:
            is_newer = self._revocations.take(signed)
        except BadRecords as problem:
            ports.refusals.refuse(problem.code, peer=source, why=str(problem))
            return
        if not is_newer:
            return
        now = self._revocations.current
        ports.metrics.revocations.set(now.version)
        ports.transport.broadcast(Kind.REVOCATIONS, signed)
        for name, entry in now.names.items():
            if before.names.get(name) != entry:
                ports.log.warning("member_removed", member=name, version=now.version)
                ports.remove(name)
        ports.transport.shut_out()
        ports.changed()
        if now.covers(ports.name, number_of(ports.identity.current.certificate.serial_number)):
            ports.log.error("removed_from_cluster", way_out="ask for a new invite or token, then: mesh join --again")
            ports.end()
