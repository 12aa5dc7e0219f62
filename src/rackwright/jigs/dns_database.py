"""The jigs of `dns-server` and `dns-database`: have a DNS server run, and have it serve the name of every node, whole;
read back; the generation that is now served recorded."""

from typing import Self

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts, Names, NameServer, Record
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
    """Nodes reach it through its role's hooks."""

    kind = "dns-database"

    def __init__(self, names: Names, server: NameServer, record: Record) -> None:
        self._names = names
        self._server = server
        self._record = record

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.names, ports.name_server, ports.record_served)

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
