"""How a server finds its cluster: from the configured seeds, and from the members it knew before it was restarted."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rackwright.mesh.address import Address, parse_address
from rackwright.mesh.agent.membership_driver import MembershipDriver
from rackwright.mesh.errors import MeshError
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import LIVE, BadRecord, MemberRecord
from rackwright.mesh.membership.protocol_outputs import Event
from rackwright.private_files import write_private_file

ALONE_SECONDS = 2.0
PEERS_SECONDS = 1.0
MAX_PEERS = 64


@dataclass(frozen=True)
class SeedPorts:
    """What finding the cluster uses of its agent."""

    name: str
    folder: Path
    advertise: Address
    seeds: Sequence[Address]
    """The addresses that a person has configured"""
    driver: MembershipDriver
    log: Log


class Seeds:
    """The addresses at which to look for members."""

    def __init__(self, ports: SeedPorts) -> None:
        self._ports, self._driver = ports, ports.driver
        self._path = ports.folder / "peers.json"
        self._changed = asyncio.Event()

    def member_changed(self, event: Event) -> None:
        self._changed.set()

    async def seek(self) -> None:
        """While this server is alone, try to connect to every seed and to every member it once knew."""
        swim = self._driver.swim
        while True:
            for seed in self.known_addresses() if swim.live <= 1 else ():
                await self._try(seed)
                if swim.live > 1:
                    break
            await asyncio.sleep(ALONE_SECONDS)

    async def _try(self, seed: Address) -> None:
        try:
            link = await self._driver.transport.dial_seed(seed)
            record = MemberRecord(link.peer.name, link.advertise or str(seed))
        except (OSError, MeshError, BadRecord) as problem:
            self._ports.log.info("seed_failed", address=str(seed), why=str(problem))
            return
        self._driver.joined(record)

    def known_addresses(self) -> list[Address]:
        """Return the addresses to try, each once and not this server's own."""
        saved: list[Address] = []
        with contextlib.suppress(OSError, ValueError, MeshError, TypeError):
            saved = [parse_address(address) for address in json.loads(self._path.read_text())]
        return [seed for seed in dict.fromkeys([*self._ports.seeds, *saved]) if seed != self._ports.advertise]

    async def save_changes(self) -> None:
        """Save the addresses of members whenever members have changed, until cancelled."""
        while True:
            await self._changed.wait()
            # Members often change several at a time.
            await asyncio.sleep(PEERS_SECONDS)
            self._changed.clear()
            self.save()

    def save(self) -> None:
        """Save the addresses to try after a restart.

        The file is never emptied: a server that knows no other member any more keeps the addresses it has saved.
        """
        members, linked = self._driver.swim.members(), self._driver.linked
        entries = [entry for entry in members if entry.state in LIVE and entry.name != self._ports.name]
        # Members that have shown a certificate come first: the others were only named, perhaps by a rogue member.
        entries.sort(key=lambda entry: (entry.name not in linked, entry.record.address))
        if entries:
            addresses = [entry.record.address for entry in entries[:MAX_PEERS]]
            write_private_file(self._path, json.dumps(addresses).encode())
