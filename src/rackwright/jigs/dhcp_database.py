"""The jigs of `provisioner-dhcp-server` and `provisioner-dhcp-database`: run a DHCP server, and publish its state.

The state is complete: what all nodes get and boot. It is read back from the server, and the generation that is now
served is recorded.
"""

from typing import Self

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import BootProvider, JigPorts, ReadDhcpState, RecordServed
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
    """Publishes the DHCP state. Changes of nodes start its runs through its role's hooks."""

    kind = "dhcp-database"

    def __init__(self, read_dhcp_state: ReadDhcpState, provider: BootProvider, record_served: RecordServed) -> None:
        self._read_dhcp_state = read_dhcp_state
        self._provider = provider
        self._record_served = record_served

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.read_dhcp_state, ports.boot_provider, ports.record_served)

    async def run(self, run: Run, log: Log) -> Outcome:
        state = await self._read_dhcp_state(run.node_role_id)
        try:
            await self._provider.publish(state)
            served = await self._provider.served()
        except (DaemonFailed, RackwrightError) as error:
            return Outcome.failure(str(error))
        if served != state:
            return Outcome.failure(
                f"Generation {state.generation} was published, but something else is served (generation "
                f"{served.generation}, {len(served.v4.hosts)} of {len(state.v4.hosts)} nodes by IPv4, "
                f"{len(served.v6.hosts)} of {len(state.v6.hosts)} by IPv6). Does somebody else configure this DHCP "
                "server?"
            )
        await self._record_served(run.node_role_id, state.generation)
        log(
            f"generation {state.generation}: {len(state.v4.hosts)} nodes, {len(state.v4.subnets)} IPv4 subnets, "
            f"{len(state.v6.subnets)} IPv6 subnets\n"
        )
        return Outcome.success()
