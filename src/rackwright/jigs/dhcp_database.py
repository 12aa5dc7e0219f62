"""The jigs of `provisioner-dhcp-server` and `provisioner-dhcp-database`: have a DHCP server run, and publish to it what
all nodes get and boot, whole; read it back; record the generation that is now served."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from rackwright.domain.errors import RackwrightError
from rackwright.domain.networks.dhcp import DhcpState
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log
from rackwright.provision.daemon import DaemonFailed

Entries = Callable[[int], Awaitable[DhcpState]]
"""(noderole): all that this provider is to serve now."""


Record = Callable[[int, int], Awaitable[None]]
"""(noderole, generation): what is now served by this provider."""


class BootProvider(Protocol):
    """A DHCP server, or what stands for one. Each method raises DaemonFailed where it does not do its work."""

    async def start(self) -> str:
        """Have it run; says what runs."""
        ...

    async def publish(self, state: DhcpState) -> None:
        """Serve just this from now on."""
        ...

    async def served(self) -> DhcpState:
        """What is served now, asked of the server itself."""
        ...


class DhcpServerJig:
    def __init__(self, provider: BootProvider) -> None:
        self._provider = provider

    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            log(f"{await self._provider.start()}\n")
        except DaemonFailed as error:
            return Outcome.failure(str(error))
        return Outcome.success()


class DhcpDatabaseJig:
    def __init__(self, entries: Entries, provider: BootProvider, record: Record) -> None:
        self._entries = entries
        self._provider = provider
        self._record = record

    async def node_create(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_update(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

    async def node_delete(self, node: JigNode) -> None:
        """Nodes reach it through its role's hooks."""

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
