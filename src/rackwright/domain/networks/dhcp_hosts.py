"""The hosts and pools that DHCP servers of both families have alike, and how they are read back from ISC Kea.

What differs between the families is in `dhcp.py` and `dhcp6.py`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Generic, TypeVar

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.names import check_node_name

Address = TypeVar("Address", IPv4Address, IPv6Address)

_BOOTENV = re.compile(r"[a-z0-9][a-z0-9.-]{0,80}")


@dataclass(frozen=True)
class DhcpHost(Generic[Address]):
    """A node, and what DHCP has for it."""

    node: str
    bootenv: str
    macs: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()


def sort_hosts(hosts: Iterable[DhcpHost[Address]]) -> tuple[DhcpHost[Address], ...]:
    """Return hosts in the order in which two states are compared."""
    return tuple(
        replace(host, macs=tuple(sorted(host.macs)), addresses=tuple(sorted(host.addresses)))
        for host in sorted(hosts, key=lambda host: host.node)
    )


def check_bootenv(name: str) -> str:
    if not _BOOTENV.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is no bootenv.")
    return name


def host_context(host: DhcpHost[Address]) -> JsonObject:
    """Return what a reservation carries along of its host, by which it is read back."""
    return {"node": check_node_name(host.node), "bootenv": check_bootenv(host.bootenv)}


def pool_share(
    pools: Sequence[tuple[Address, Address]], server: int, servers: int
) -> tuple[tuple[Address, Address], ...]:
    """Return the part of the pools that server number `server` of `servers` gives out.

    Shares do not overlap, so two servers never give out the same address. Numbers begin with 0.
    """
    parts: list[tuple[Address, Address]] = []
    for first, last in pools:
        size = int(last) - int(first) + 1
        start, end = size * server // servers, size * (server + 1) // servers
        if start < end:
            parts.append((first + start, first + (end - 1)))
    return tuple(parts)


# --- from Kea's configuration


@dataclass(frozen=True)
class Reservation:
    """What Kea has for one MAC, everywhere or in a subnet."""

    node: str
    bootenv: str
    hostname: str
    mac: str
    addresses: tuple[str, ...] = ()

    @property
    def host(self) -> tuple[str, str, str]:
        """What the reservations of one host have alike."""
        return self.node, self.bootenv, self.hostname


def read_reservation(entry: Mapping[str, object], mac: str, addresses: Iterable[object] = ()) -> Reservation:
    """Return a reservation of Kea's; where its MAC and addresses are depends on the family."""
    context = as_mapping(entry.get("user-context"))
    return Reservation(
        str(context.get("node")),
        str(context.get("bootenv")),
        str(entry.get("hostname")),
        mac,
        tuple(map(str, addresses)),
    )


def read_hosts(
    everywhere: Iterable[Reservation], in_subnets: Iterable[Reservation], address_type: Callable[[str], Address]
) -> tuple[DhcpHost[Address], ...]:
    """Return the hosts that have these reservations: each MAC has one everywhere, and one for each address."""
    macs_by_host: dict[tuple[str, str, str], list[str]] = {}
    for reservation in everywhere:
        macs_by_host.setdefault(reservation.host, []).append(reservation.mac)
    reserved: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for reservation in in_subnets:
        macs_by_address = reserved.setdefault(reservation.host, {})
        for address in reservation.addresses:
            macs_by_address.setdefault(address, []).append(reservation.mac)
    return tuple(
        DhcpHost(
            host[0],
            host[1],
            tuple(macs),
            # An address that only some of its MACs get is not what was rendered.
            tuple(
                address_type(address)
                for address, address_macs in reserved.get(host, {}).items()
                if sorted(address_macs) == sorted(macs)
            ),
        )
        for host, macs in macs_by_host.items()
    )


def read_generation(server: Mapping[str, object]) -> int:
    """Return the generation that a server serves; 0 if its configuration is not ours."""
    generation = as_mapping(server.get("user-context")).get("generation", 0)
    return generation if isinstance(generation, int) else 0


def read_pools(
    subnet: Mapping[str, object], address_type: Callable[[str], Address]
) -> tuple[tuple[Address, Address], ...]:
    """Return the first and the last address of each pool of a subnet."""
    return tuple(_read_pool(str(as_mapping(pool)["pool"]), address_type) for pool in as_list(subnet.get("pools")))


def _read_pool(text: str, address_type: Callable[[str], Address]) -> tuple[Address, Address]:
    """Return the ends of a pool. Kea writes one that is just a network as that."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    if dash:
        return address_type(first), address_type(last)
    network = ip_network(first)
    return address_type(str(network[0])), address_type(str(network[-1]))


def as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
