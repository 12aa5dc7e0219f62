"""The ports through which hammers use their server: each hammer takes those it needs in its own `make`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from rackwright.reach.ssh_connections import Connections, Target


@dataclass(frozen=True)
class HammerPorts:
    """Everything of its server that a hammer may use."""

    connections: Connections
    targets: Callable[[int], Awaitable[Target]]
    """(node): return how its SSH is reached, and which host key it must show."""
    http: httpx.AsyncClient
    lab: bool
    """Whether this server is one for simulated machines."""
    qemu_sockets: Path | None
    """The folder of the control sockets of this host's virtual machines, if it has any."""
