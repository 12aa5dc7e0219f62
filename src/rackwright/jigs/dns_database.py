"""The jigs of `dns-server` and `dns-database`: run a DNS server, and publish its state.

The state is complete: the names of all nodes. It is read back from the server, and the generation that is now served is
recorded.
"""

from typing import Self

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts, NameServer, ReadDnsState, RecordServed
from rackwright.provision.daemon import DaemonFailed
from rackwright.reach.run_log import Log


class DnsServerJig(Jig):
    kind = "dns-server"

    def __init__(self, server: NameServer) -> None:
        self._server = server

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.name_server)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            log(f"{await self._server.start()}\n")
        except DaemonFailed as error:
            return Outcome.failure(str(error))
        return Outcome.success()


class DnsDatabaseJig(Jig):
    """Publishes the DNS state. Changes of nodes start its runs through its role's hooks."""

    kind = "dns-database"

    def __init__(self, read_dns_state: ReadDnsState, server: NameServer, record_served: RecordServed) -> None:
        self._read_dns_state = read_dns_state
        self._server = server
        self._record_served = record_served

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.read_dns_state, ports.name_server, ports.record_served)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            state = await self._read_dns_state()
            await self._server.publish(state)
            served = await self._server.served()
        except (DaemonFailed, RackwrightError) as error:
            return Outcome.failure(str(error))
        if served != state:
            differing = sorted(zone for zone in state.zones if served.zones.get(zone) != state.zones[zone])
            return Outcome.failure(
                f"Zones {', '.join(differing)} were updated, but something else is served. Does somebody else change "
                "them?"
            )
        await self._record_served(run.node_role_id, state.generation)
        count = sum(map(len, state.zones.values()))
        log(f"generation {state.generation}: {count} records in {len(state.zones)} zones\n")
        return Outcome.success()
