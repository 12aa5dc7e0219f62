"""The ports through which jigs use their server: each jig takes those it needs in its own `make`.

A jig knows neither the store nor the API. What it needs of them is a type here, and `server/jig_ports.py` implements
it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from rackwright.domain.installs.node_network.living import NodeNetwork
from rackwright.domain.networks.dhcp6 import DhcpStates
from rackwright.domain.networks.dns import DnsState
from rackwright.domain.runs import Outcome, Run
from rackwright.reach.mesh_states import MeshStateRunner, ReadMembership
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, Target

AssignAddresses = Callable[[Run, str], Awaitable[Sequence[str]]]
"""(run, network): assign and return the addresses of the run's node on the network, each with its prefix."""

InspectBoot = Callable[[], Awaitable[list[str]]]
"""Return what is served now to machines that boot, a line each; raise BootTrouble if something is missing."""

ReadDhcpState = Callable[[int], Awaitable[DhcpStates]]
"""(noderole): return the state that this boot provider is to serve now."""

IsMember = Callable[[Run], Awaitable[bool]]
"""Return whether the run's node is a living member of the mesh, and so can be reached through it."""

ReadDnsState = Callable[[], Awaitable[DnsState]]
"""Return the names that are to be served now."""

InspectNode = Callable[[int], Awaitable[bool]]
"""(node): check that a node is up, and return whether SSH was used for it; raise Unreachable if it is not up."""

OpenAttempt = Callable[[Run, str], Awaitable[None]]
"""(run, target OS): open an install attempt, in which all that the install does stays as it is now."""

RecordAddress = Callable[[Run, str], Awaitable[None]]
"""(run, address): record that the run's node answered at another address, to the host key that is known of it."""

RecordServed = Callable[[int, int], Awaitable[None]]
"""(noderole, generation): record the generation that this provider serves now."""

ResolveNodeNetwork = Callable[[Run], Awaitable[NodeNetwork]]
"""(run): return the network that is wanted of the run's node; raise BadNodeNetwork if it cannot be had there."""

FindScripts = Callable[[Run], Awaitable[Sequence[Path]]]
"""(run): return the scripts of the run's role."""

FindTarget = Callable[[int], Awaitable[Target]]
"""(node): return how its SSH is reached."""

FindStateTree = Callable[[Run], Awaitable[Path | None]]
"""(run): return the folder of the state tree of the run's role; None if it has none."""


class BootProvider(Protocol):
    """A DHCP server, or a stand-in for one. Each method raises DaemonFailed if the server fails."""

    async def start(self) -> str:
        """Start the server if it does not run, and return a line about what runs."""
        ...

    async def publish(self, state: DhcpStates) -> None:
        """Serve this state, and nothing else, from now on."""
        ...

    async def served(self) -> DhcpStates:
        """Return the state that is served now, asked of the server itself."""
        ...


class NameServer(Protocol):
    """A DNS server, or a stand-in for one. Each method raises DaemonFailed if the server fails."""

    async def start(self) -> str: ...

    async def publish(self, state: DnsState) -> None: ...

    async def served(self) -> DnsState: ...


class Transitions(Protocol):
    """Calls `do_transition` of a role; raises its error. However the call ends, nothing of it runs on afterwards."""

    async def do_transition(self, run: Run, log: Log) -> Outcome: ...


@dataclass(frozen=True)
class JigPorts:
    """Everything of its server that a jig may use."""

    transitions: Transitions
    open_attempt: OpenAttempt
    inspect_boot: InspectBoot
    read_dhcp_state: ReadDhcpState
    boot_provider: BootProvider
    record_served: RecordServed
    resolve_node_network: ResolveNodeNetwork
    record_address: RecordAddress
    read_dns_state: ReadDnsState
    name_server: NameServer
    assign_addresses: AssignAddresses
    inspect_node: InspectNode
    targets: FindTarget
    connections: Connections
    scripts: FindScripts
    state_tree: FindStateTree
    membership: ReadMembership
    is_member: IsMember
    mesh: MeshStateRunner | None
    """The way through the mesh, if this server knows of one."""
    lab_client: httpx.AsyncClient | None
    """The way to simulated machines, if this server has any."""
