"""What a server gives its hammers: each hammer takes what it needs of it in its own `make`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from rackwright.reach.ssh_connections import Connections, Target


@dataclass(frozen=True)
class HammerPorts:
    """All that hammers may ask for of the server they work in."""

    connections: Connections
    targets: Callable[[int], Awaitable[Target]]
    """(node): how its SSH is reached, and which host key it must show."""
    http: httpx.AsyncClient
    lab: bool
    """Whether this server is one for simulated machines."""
    qemu_sockets: Path | None
    """Where virtual machines of this host have their control sockets, if it has any."""
