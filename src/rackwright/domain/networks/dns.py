"""What DNS servers serve: the names of nodes and the addresses behind them, both ways, by zone.

Pure. Everything is checked against an allow-list on its way in; what is here may be rendered. Running a server is in
`provision/knot.py`, speaking to one in `provision/dns_update.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_network

from rackwright.domain.names import check_node_name
from rackwright.domain.networks.networks import Address, Subnet

TTL = 60
"""Seconds: an address that changed is soon known everywhere."""


class Type(StrEnum):
    A = "A"
    AAAA = "AAAA"
    PTR = "PTR"


@dataclass(frozen=True, order=True)
class Record:
    """One line of a zone. Names are whole, without the last dot."""

    name: str
    type: Type
    value: str


@dataclass(frozen=True)
class DnsHost:
    node: str
    addresses: tuple[Address, ...] = ()
    """That the name stands for."""
    others: tuple[Address, ...] = ()
    """Whose name it is besides."""


@dataclass(frozen=True)
class DnsState:
    """All of it. An equal state is served by an equal server."""

    generation: int = 0
    zones: Mapping[str, frozenset[Record]] = field(default_factory=dict)


def dns_state(generation: int, hosts: Iterable[DnsHost], subnets: Iterable[Subnet], domains: Iterable[str]) -> DnsState:
    """A, AAAA and PTR of the nodes whose names lie in one of the domains, in their zones and those of the subnets."""
    zones: dict[str, set[Record]] = {zone: set() for zone in forward_zones(domains)}
    forward = list(zones)
    for subnet in subnets:
        zones.setdefault(reverse_zone(subnet), set())
    for host in hosts:
        name = check_node_name(host.node)
        if not any(_below(name, zone) for zone in forward):
            continue
        for address in host.addresses:
            kind = Type.A if address.version == 4 else Type.AAAA
            zones[_zone_of(name, forward)].add(Record(name, kind, str(address)))
        for address in {*host.addresses, *host.others}:
            pointer = address.reverse_pointer
            home = _home(pointer, zones)
            if home is not None:
                zones[home].add(Record(pointer, Type.PTR, name))
    return DnsState(generation, {zone: frozenset(records) for zone, records in zones.items()})


def forward_zones(domains: Iterable[str]) -> list[str]:
    """The zones that domains are served in: one below another is part of that."""
    listed = set(domains)
    return sorted(zone for zone in listed if not any(_below(zone, other) for other in listed))


def reverse_zone(subnet: Subnet) -> str:
    """The zone of a subnet's PTR records: that of the whole octets (or hex digits) of its prefix.

    Several subnets may share one; what is in it of others is nobody's.
    """
    step, longest = (8, 24) if subnet.version == 4 else (4, 124)
    prefix = min(subnet.prefixlen // step * step, longest)
    whole = ip_network(f"{subnet.network_address}/{prefix}", strict=False)
    labels = whole.network_address.reverse_pointer.split(".")
    return ".".join(labels[(whole.max_prefixlen - prefix) // step :])


def _below(name: str, zone: str) -> bool:
    return name.endswith(f".{zone}")


def _zone_of(name: str, zones: Sequence[str]) -> str:
    return next(zone for zone in zones if _below(name, zone))


def _home(pointer: str, zones: Iterable[str]) -> str | None:
    """The nearest zone above; None for an address in none of the networks."""
    return max((zone for zone in zones if _below(pointer, zone)), key=len, default=None)
