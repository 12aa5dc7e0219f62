"""The jigs of `provisioner-dhcp-server` and `provisioner-dhcp-database`: have a DHCP server run, and publish to it what
all nodes get and boot, whole; read it back; record the generation that is now served."""

from typing import Self

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import BootProvider, Entries, JigPorts, Record
from rackwright.provision.daemon import DaemonFailed
from rackwright.reach.run_log import Log


class DhcpServerJig(Jig):
    kind = "dhcp-server"

    def __init__(self, provider: BootProvider) -> None:
        self._provider = provider

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.boot_provider)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            log(f"{await self._provider.start()}\n")
        except DaemonFailed as error:
            return Outcome.failure(str(error))
        return Outcome.success()


class DhcpDatabaseJig(Jig):
    """Nodes reach it through its role's hooks."""

    kind = "dhcp-database"

    def __init__(self, entries: Entries, provider: BootProvider, record: Record) -> None:
        self._entries = entries
        self._provider = provider
        self._record = record

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.entries, ports.boot_provider, ports.record_served)

    async def run(self, run: Run, log: Log) -> Outcome:
        state = await self._entries(run.node_role_id)
        try:
            await self._provider.publish(state)
            served = await self._provider.served()
        except (DaemonFailed, RackwrightError) as error:
            return Outcome.failure(str(error))
        if served != state:
            return Outcome.failure(
                f"Generation {state.generation} was published, but something else is served (generation "
                f"{served.generation}, {len(served.hosts)} of {len(state.hosts)} nodes). Does somebody else configure "
                "this DHCP server?"
            )
        await self._record(run.node_role_id, state.generation)
        log(f"generation {state.generation}: {len(state.hosts)} nodes, {len(state.subnets)} subnets\n")
        return Outcome.success()
