"""The IPv6 subnets that this host serves, in a file of the server's home, and this host's own addresses in them.

The relay of DHCPv6 and the router advertisements both go by this file, so they serve at once after a restart, and never
other subnets than Kea was told.
"""

import json
from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

from rackwright.private_files import write_private_file

ADDRESSES = Path("/proc/net/if_inet6")
GLOBAL_SCOPE, TENTATIVE, DUPLICATE = 0x00, 0x40, 0x08


def subnets_file(home: Path) -> Path:
    return home / "kea6" / "subnets.json"


def write_subnets(path: Path, subnets: Iterable[IPv6Network]) -> None:
    write_private_file(path, json.dumps([str(subnet) for subnet in subnets]).encode())


def read_subnets(path: Path) -> tuple[IPv6Network, ...]:
    """Return the subnets that are served; none before anything was published."""
    try:
        return tuple(IPv6Network(text) for text in json.loads(path.read_text()))
    except FileNotFoundError:
        return ()


def parse_addresses(table: str) -> list[tuple[str, IPv6Address]]:
    """Return (interface, address) of the kernel's table of IPv6 addresses: those that can be used beyond the link."""
    addresses = []
    for line in table.splitlines():
        words = line.split()
        scope, flags = int(words[3], 16), int(words[4], 16)
        if scope == GLOBAL_SCOPE and not flags & (TENTATIVE | DUPLICATE):
            addresses.append((words[5], IPv6Address(bytes.fromhex(words[0]))))
    return addresses


def server_addresses(interface: str, subnets: Iterable[IPv6Network]) -> list[tuple[IPv6Address, IPv6Network]]:
    """Return this host's address in each served subnet that it has one in, on one interface."""
    try:
        table = ADDRESSES.read_text()
    except FileNotFoundError:  # a kernel without IPv6
        return []
    own = [address for name, address in parse_addresses(table) if name == interface]
    return [(address, subnet) for subnet in subnets for address in own if address in subnet]
