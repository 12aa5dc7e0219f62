"""The state that DNS servers serve: zones with the records of nodes, from names to addresses and back.

Pure. Everything is checked against an allow-list before it becomes a record, so records may be rendered. Running a
server is in `provision/knot.py`, speaking to one in `provision/dns_update.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_network

from rackwright.domain.names import check_node_name
from rackwright.domain.networks.networks import Address, Subnet

TTL = 60
"""Seconds: an address that changed is soon known everywhere."""


class RecordType(StrEnum):
    A = "A"
    AAAA = "AAAA"
    PTR = "PTR"


@dataclass(frozen=True, order=True)
class Record:
    """One record of a zone. Names are fully qualified, without the last dot."""

    name: str
    type: RecordType
    value: str


@dataclass(frozen=True)
class DnsHost:
    """A node, and its addresses for DNS."""

    node: str
    addresses: tuple[Address, ...] = ()
    """Addresses that the name resolves to."""
    others: tuple[Address, ...] = ()
    """Further addresses that resolve back to the name."""


@dataclass(frozen=True)
class DnsState:
    """Everything that a DNS server serves. An equal state is served by an equal server."""

    generation: int = 0
    zones: Mapping[str, frozenset[Record]] = field(default_factory=dict)


def dns_state(generation: int, hosts: Iterable[DnsHost], subnets: Iterable[Subnet], domains: Iterable[str]) -> DnsState:
    """Return the A, AAAA and PTR records of the nodes whose names are below one of the domains.

    A and AAAA records are in the zones of the domains, PTR records in those of the subnets.
    """
    zones: dict[str, set[Record]] = {zone: set() for zone in forward_zones(domains)}
    forward = list(zones)
    for subnet in subnets:
        zones.setdefault(reverse_zone(subnet), set())
    for host in hosts:
        name = check_node_name(host.node)
        if not any(_is_below(name, zone) for zone in forward):
            continue
        for address in host.addresses:
            kind = RecordType.A if address.version == 4 else RecordType.AAAA
            zones[_zone_of(name, forward)].add(Record(name, kind, str(address)))
        for address in {*host.addresses, *host.others}:
            pointer = address.reverse_pointer
            reverse = _nearest_zone(pointer, zones)
            if reverse is not None:
                zones[reverse].add(Record(pointer, RecordType.PTR, name))
    return DnsState(generation, {zone: frozenset(records) for zone, records in zones.items()})


def forward_zones(domains: Iterable[str]) -> list[str]:
    """Return the zones that domains are served in: a domain below another one is part of that one's zone."""
    listed = set(domains)
    return sorted(zone for zone in listed if not any(_is_below(zone, other) for other in listed))


def reverse_zone(subnet: Subnet) -> str:
    """Return the zone of a subnet's PTR records: that of the whole octets (or hex digits) of its prefix.

    Several subnets may share a zone; addresses in it that belong to no subnet have no records.
    """
    step, longest = (8, 24) if subnet.version == 4 else (4, 124)
    prefix = min(subnet.prefixlen // step * step, longest)
    zone_network = ip_network(f"{subnet.network_address}/{prefix}", strict=False)
    labels = zone_network.network_address.reverse_pointer.split(".")
    return ".".join(labels[(zone_network.max_prefixlen - prefix) // step :])


def _is_below(name: str, zone: str) -> bool:
    return name.endswith(f".{zone}")


def _zone_of(name: str, zones: Sequence[str]) -> str:
    return next(zone for zone in zones if _is_below(name, zone))


def _nearest_zone(pointer: str, zones: Iterable[str]) -> str | None:
    """Return the nearest zone above a PTR name; None for an address in none of the networks."""
    return max((zone for zone in zones if _is_below(pointer, zone)), key=len, default=None)
