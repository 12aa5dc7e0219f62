"""What a server gives its jigs: each jig takes what it needs of it in its own `make`.

A jig knows neither the store nor the API. What it needs of them is a type here, and `server/jig_ports.py` fills it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.networks.dhcp import DhcpState
from rackwright.domain.networks.dns import DnsState
from rackwright.domain.runs import Outcome, Run
from rackwright.reach.mesh_states import MeshStateRunner, ReadMembership
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, Target

Assign = Callable[[Run, str], Awaitable[Sequence[str]]]
"""(run, network): the addresses of the run's node there, each with its prefix."""

BootLook = Callable[[], Awaitable[list[str]]]
"""What is served now to machines that boot, a line each; BootTrouble if something is missing."""

Entries = Callable[[int], Awaitable[DhcpState]]
"""(noderole): all that this provider is to serve now."""

IsMember = Callable[[Run], Awaitable[bool]]
"""Whether the run's node is a living member of the mesh, and so can be reached that way."""

Names = Callable[[], Awaitable[DnsState]]
"""All names that are to be served now."""

NodeLook = Callable[[int], Awaitable[bool]]
"""Sees for itself that a node is up; whether over SSH. Raises Unreachable."""

OpenAttempt = Callable[[Run, str, JsonObject], Awaitable[None]]
"""(run, target OS, everything frozen for it)"""

Record = Callable[[int, int], Awaitable[None]]
"""(noderole, generation): what is now served by this provider."""

Scripts = Callable[[Run], Awaitable[Sequence[Path]]]
"""The scripts of a run's role."""

Targets = Callable[[int], Awaitable[Target]]
"""(node): how its SSH is reached."""

Tree = Callable[[Run], Awaitable[Path | None]]
"""Where the state tree of a run's role lies; None if it has none."""


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


class NameServer(Protocol):
    """A DNS server, or what stands for one. Each method raises DaemonFailed where it does not do its work."""

    async def start(self) -> str: ...

    async def publish(self, state: DnsState) -> None: ...

    async def served(self) -> DnsState: ...


class Transitions(Protocol):
    """Who calls `do_transition`: it raises what went wrong, and whatever becomes of it, nothing goes on afterwards."""

    async def do_transition(self, run: Run, log: Log) -> Outcome: ...


@dataclass(frozen=True)
class JigPorts:
    """All that jigs may ask for of the server they work in."""

    transitions: Transitions
    open_attempt: OpenAttempt
    look_at_boot: BootLook
    entries: Entries
    boot_provider: BootProvider
    record_served: Record
    names: Names
    name_server: NameServer
    assign: Assign
    look_at_node: NodeLook
    targets: Targets
    connections: Connections
    scripts: Scripts
    state_tree: Tree
    membership: ReadMembership
    is_member: IsMember
    mesh: MeshStateRunner | None
    """The way through the mesh, if this server knows of one."""
    lab_client: httpx.AsyncClient | None
    """The way to simulated machines, if this server has any."""
