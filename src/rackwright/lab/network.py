"""The network of a lab, in this process's namespace: a bridge with the server on it, and a tap for each machine.

It has one family: IPv4, or IPv6 for machines that know nothing else.
"""

import asyncio
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from rackwright.domain.catalogue import JsonObject
from rackwright.lab.hardware import LabFailed

BRIDGE = "lab0"
SERVER, SERVER6 = "10.77.0.1", "fd77::1"


@dataclass(frozen=True)
class LabNetwork:
    """The network of a lab: the server's address, and what the server is told of it."""

    interface: IPv4Interface | IPv6Interface
    """The server's address, with the length of the prefix"""
    settings: JsonObject

    @property
    def server(self) -> str:
        return str(self.interface.ip)

    @property
    def host(self) -> str:
        """The server as a URL names it."""
        return self.server if self.interface.version == 4 else f"[{self.server}]"


def _describe_network(
    interface: str, last_admin: str, hosts: tuple[str, str], strangers: tuple[str, str]
) -> LabNetwork:
    """Return a network: strangers get an address of the last range, accepted machines one of their own."""
    server = ip_interface(interface)
    return LabNetwork(
        server,
        {
            "name": "admin",
            "category": "admin",
            "description": "The machines of the lab",
            f"v{server.version}_subnet": str(server.network),
            "ranges": [
                {"name": "admin", "use": "admin", "first": str(server.ip), "last": last_admin},
                {"name": "host", "use": "host", "first": hosts[0], "last": hosts[1]},
                {"name": "strangers", "use": "dynamic", "first": strangers[0], "last": strangers[1]},
            ],
        },
    )


IPV4 = _describe_network(f"{SERVER}/24", "10.77.0.9", ("10.77.0.10", "10.77.0.99"), ("10.77.0.100", "10.77.0.199"))
IPV6 = _describe_network(f"{SERVER6}/64", "fd77::9", ("fd77::10", "fd77::99"), ("fd77::100", "fd77::199"))


async def ip(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "ip", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        raise LabFailed(f"ip {' '.join(arguments)}: {errors.decode(errors='replace').strip()}")


async def make_bridge(network: LabNetwork = IPV4) -> None:
    await ip("link", "set", "lo", "up")
    await ip("link", "add", BRIDGE, "type", "bridge")
    # No port of the bridge leads out, so there can be no loop, and no need to wait for one to be found.
    await ip("link", "set", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
    # Nobody else is there who could have the address, so it need not be looked for.
    at_once = ["nodad"] if network.interface.version == 6 else []
    await ip("addr", "add", str(network.interface), "dev", BRIDGE, *at_once)
    await ip("link", "set", BRIDGE, "up")


async def add_tap(name: str) -> None:
    await ip("tuntap", "add", name, "mode", "tap")
    await ip("link", "set", name, "master", BRIDGE, "up")
