"""The jigs of `dns-server` and `dns-database`: have a DNS server run, and have it serve the name of every node, whole;
read back; the generation that is now served recorded."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from rackwright.domain.errors import RackwrightError
from rackwright.domain.networks.dns import DnsState
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log
from rackwright.jigs.dhcp_database import Record
from rackwright.provision.daemon import DaemonFailed

Names = Callable[[], Awaitable[DnsState]]
"""All that is to be served now."""


class NameServer(Protocol):
    """A DNS server, or what stands for one. Each method raises DaemonFailed where it does not do its work."""

    async def start(self) -> str: ...

    async def publish(self, state: DnsState) -> None: ...

    async def served(self) -> DnsState: ...


class DnsServerJig:
    def __init__(self, server: NameServer) -> None:
        self._server = server

    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            log(f"{await self._server.start()}\n")
        except DaemonFailed as error:
            return Outcome.failure(str(error))
        return Outcome.success()


class DnsDatabaseJig:
    def __init__(self, names: Names, server: NameServer, record: Record) -> None:
        self._names = names
        self._server = server
        self._record = record

    async def node_create(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_update(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_delete(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            state = await self._names()
            await self._server.publish(state)
            served = await self._server.served()
        except (DaemonFailed, RackwrightError) as error:
            return Outcome.failure(str(error))
        if served != state:
            wrong = sorted(zone for zone in state.zones if served.zones.get(zone) != state.zones[zone])
            return Outcome.failure(
                f"Zones {', '.join(wrong)} were updated, but something else is served. Does somebody else change them?"
            )
        await self._record(run.node_role_id, state.generation)
        count = sum(map(len, state.zones.values()))
        log(f"generation {state.generation}: {count} records in {len(state.zones)} zones\n")
        return Outcome.success()
