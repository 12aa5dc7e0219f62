"""Networks with their subnets, ranges and routers, the rules for them, and the roles that networks make.

Pure: nothing here knows which addresses are taken; `store/networks/allocations.py` does. What passes the checks here
may be rendered into the configuration of a DHCP or DNS server.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from rackwright.domain.catalogue import Attrib, Barclamp, Flag, JsonObject, Role
from rackwright.domain.errors import Invalid

Address = IPv4Address | IPv6Address
Subnet = IPv4Network | IPv6Network

MAX_NAME = 40
"""Characters of a network's name: so few that `hint-<name>-v4addr` and `network-<name>` are valid names, too."""
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
MAX_RANGES = 64
MAX_ROUTERS = 16

BARCLAMP = "networks"
"""The barclamp of the roles that networks make. It is on no disk: it is made from the networks in the database."""
JIG = "network"
HINTS = "hint"
"""The key in a node's hint below which people ask for addresses: `hint/<network>/v4addr`."""


class Category(StrEnum):
    """What a network is for. Every machine is on the admin network, by which it is booted and managed."""

    ADMIN = "admin"
    BMC = "bmc"
    GENERAL = "general"


class Use(StrEnum):
    """Who gets the addresses of a range."""

    HOST = "host"
    """Nodes."""
    ADMIN = "admin"
    """Admin nodes; where a network has no such range, they use the ranges of other nodes."""
    DYNAMIC = "dynamic"
    """DHCP clients without an address of their own: machines that nobody knows yet. Never allocated."""


@dataclass(frozen=True)
class Range:
    name: str
    use: Use
    first: Address
    last: Address

    @property
    def family(self) -> int:
        return self.first.version

    @property
    def size(self) -> int:
        return int(self.last) - int(self.first) + 1

    def __contains__(self, address: Address) -> bool:
        return address.version == self.family and int(self.first) <= int(address) <= int(self.last)

    def overlaps(self, other: "Range") -> bool:
        return other.first in self or self.first in other


@dataclass(frozen=True)
class Router:
    address: Address
    preference: int = 100
    """Of several routers of one address family, the one with the lowest preference is the default."""


@dataclass(frozen=True)
class Network:
    name: str
    category: Category = Category.GENERAL
    description: str = ""
    vlan: int | None = None
    v4_subnet: IPv4Network | None = None
    v6_subnet: IPv6Network | None = None
    ranges: tuple[Range, ...] = ()
    routers: tuple[Router, ...] = ()

    @property
    def subnets(self) -> tuple[Subnet, ...]:
        return tuple(subnet for subnet in (self.v4_subnet, self.v6_subnet) if subnet is not None)

    def subnet(self, family: int) -> Subnet | None:
        return self.v4_subnet if family == 4 else self.v6_subnet

    def ranges_for(self, family: int, *, admin: bool) -> list[Range]:
        """Return the ranges from which a node gets an address, in the order in which they are tried."""
        of_family = (range for range in self.ranges if range.family == family)
        ordered = sorted(of_family, key=lambda range: int(range.first))
        admin_ranges = [range for range in ordered if admin and range.use is Use.ADMIN]
        return admin_ranges or [range for range in ordered if range.use is Use.HOST]

    def range_of(self, address: Address) -> Range | None:
        return next((range for range in self.ranges if address in range), None)


# --- reading what people wrote


def parse_address(text: str, pointer: str = "") -> Address:
    try:
        if "%" not in text:  # a zone has a meaning on one host only
            return ip_address(text)
    except ValueError:
        pass
    raise Invalid(f"{text[:60]!r} is no IP address; write it like 10.0.0.10 or fd00::10.", pointer)


def parse_subnet(text: str, family: int, pointer: str) -> Subnet:
    """Return a subnet in which machines can be: not too small for any, and of addresses for single hosts."""
    example = "10.0.0.0/24" if family == 4 else "fd00:0:0:1::/64"
    try:
        subnet = ip_network(text)
    except ValueError:
        raise Invalid(
            f"{text[:60]!r} is no IPv{family} subnet with its first address; write it like {example}.", pointer
        ) from None
    if subnet.version != family or "/" not in text:
        raise Invalid(f"{text[:60]!r} is no IPv{family} subnet; write it like {example}.", pointer)
    shortest, longest = (8, 30) if family == 4 else (16, 126)
    if not shortest <= subnet.prefixlen <= longest:
        raise Invalid(f"{text}: the prefix of an IPv{family} subnet is {shortest} to {longest} bits long.", pointer)
    if subnet.is_multicast or subnet.is_loopback or subnet.is_link_local or subnet.is_unspecified:
        raise Invalid(f"{text} is kept for special uses; no machine can have an address of it.", pointer)
    return subnet


def check_network_name(name: str, pointer: str = "/name") -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise Invalid(
            f"{name[:80]!r} is no name for a network: use lower-case letters, digits and '-', a letter first, at most "
            f"{MAX_NAME} characters.",
            pointer,
        )
    return name


# --- rules for networks


def check_network(network: Network) -> Network:
    """Raise Invalid, with a pointer, for the first rule that the network breaks by itself."""
    check_network_name(network.name)
    if network.vlan is not None and not 1 <= network.vlan <= 4094:
        raise Invalid(f"{network.vlan} is no VLAN; they go from 1 to 4094.", "/vlan")
    if not network.subnets:
        raise Invalid(f"Network {network.name!r} needs an IPv4 or an IPv6 subnet.", "/v4_subnet")
    if len(network.ranges) > MAX_RANGES or len(network.routers) > MAX_ROUTERS:
        raise Invalid(f"A network has at most {MAX_RANGES} ranges and {MAX_ROUTERS} routers.", "/ranges")
    for index, range in enumerate(network.ranges):
        _check_range(network, range, network.ranges[:index], f"/ranges/{index}")
    for index, router in enumerate(network.routers):
        _check_router(network, router, network.routers[:index], f"/routers/{index}")
    return network


def _check_range(network: Network, range: Range, others: Sequence[Range], pointer: str) -> None:
    check_network_name(range.name, f"{pointer}/name")
    if any(other.name == range.name for other in others):
        raise Invalid(f"Network {network.name!r} has two ranges named {range.name!r}.", f"{pointer}/name")
    first, last = range.first, range.last
    if first.version != last.version:
        raise Invalid(f"{first} and {last} are of two families; a range is of one.", f"{pointer}/last")
    for field, address in (("first", first), ("last", last)):
        _check_host(network, address, f"{pointer}/{field}")
    if int(last) < int(first):
        raise Invalid(f"Range {range.name!r} ends at {last}, before it begins at {first}.", f"{pointer}/last")
    for other in others:
        if range.overlaps(other):
            raise Invalid(
                f"Range {range.name!r} ({first} to {last}) overlaps range {other.name!r} ({other.first} to "
                f"{other.last}).",
                f"{pointer}/first",
            )


def _check_router(network: Network, router: Router, others: Sequence[Router], pointer: str) -> None:
    _check_host(network, router.address, f"{pointer}/address")
    inside = network.range_of(router.address)
    if inside is not None:
        raise Invalid(
            f"Router {router.address} lies in range {inside.name!r}, whose addresses go to machines. "
            "Shorten the range.",
            f"{pointer}/address",
        )
    if any(other.address == router.address for other in others):
        raise Invalid(f"Router {router.address} is there twice.", f"{pointer}/address")


def _check_host(network: Network, address: Address, pointer: str) -> None:
    """Refuse an address that no machine in the network's subnet can have."""
    subnet = network.subnet(address.version)
    if subnet is None:
        raise Invalid(f"{address}: network {network.name!r} has no IPv{address.version} subnet.", pointer)
    if address not in subnet:
        raise Invalid(f"{address} is not in {subnet}, the subnet of network {network.name!r}.", pointer)
    if address == subnet.network_address or (address.version == 4 and address == subnet.broadcast_address):
        raise Invalid(f"{address} stands for all of {subnet}; no machine can have it.", pointer)


def check_overlap(network: Network, others: Iterable[Network]) -> None:
    """Refuse a subnet that shares an address with one of another network.

    So an address alone tells which network it is in.
    """
    for other in others:
        for subnet in network.subnets:
            taken = other.subnet(subnet.version)
            if other.name != network.name and taken is not None and subnet.overlaps(taken):
                raise Invalid(
                    f"{subnet} overlaps {taken}, which network {other.name!r} has.", f"/v{subnet.version}_subnet"
                )


# --- the address of a node


def check_requested_address(
    network: Network, address: Address, pointer: str = "/address", *, router: bool = False
) -> None:
    """Refuse an address that no node may ask for. An address outside of all ranges may be asked for.

    `router`: the node was found to have that address already, so it may well be the router itself.
    """
    _check_host(network, address, pointer)
    if not router and any(other.address == address for other in network.routers):
        raise Invalid(f"{address} is a router of network {network.name!r}.", pointer)
    inside = network.range_of(address)
    if inside is not None and inside.use is Use.DYNAMIC:
        raise Invalid(
            f"{address} lies in range {inside.name!r}, which DHCP gives to machines that nobody knows yet.", pointer
        )


def same_host_part(network: Network, known: Address, of: Subnet) -> Address | None:
    """Return the network's address with the host part that `known` has in subnet `of`; None if it has no such one."""
    subnet = network.subnet(known.version)
    if subnet is None or known not in of:
        return None
    part = int(known) - int(of.network_address)
    if part >= subnet.num_addresses:
        return None
    return subnet[part]


# --- the roles


def role_name(network: str) -> str:
    return f"network-{network}"


def hint_name(network: str, family: int) -> str:
    return f"hint-{network}-v{family}addr"


def hint_path(network: str, family: int) -> tuple[str, ...]:
    return (HINTS, network, f"v{family}addr")


_ADDRESS_PATTERNS = {4: r"^[0-9.]{7,15}(?![\s\S])", 6: r"^[0-9a-fA-F:.]{2,45}(?![\s\S])"}


def networks_barclamp(networks: Iterable[Network]) -> Barclamp:
    """Return the barclamp of the roles and attribs that these networks make."""
    listed = sorted(networks, key=lambda network: network.name)
    admin = next((network.name for network in listed if network.category is Category.ADMIN), None)
    return Barclamp(
        name=BARCLAMP,
        display="Networks",
        description="One role a network; made by networks and gone with them",
        parent="network",
        roles=tuple(_role(network, admin) for network in listed),
        attribs=tuple(attrib for network in listed for attrib in _attribs(network)),
    )


def _role(network: Network, admin: str | None) -> Role:
    is_admin = network.category is Category.ADMIN
    return Role(
        name=role_name(network.name),
        barclamp=BARCLAMP,
        jig=JIG,
        description=f"The node is on network {network.name} and has its addresses there",
        # The host part of the admin address is the first choice elsewhere, so that address comes first.
        requires=() if is_admin or admin is None else (role_name(admin),),
        # Every machine is on the admin network from its discovery on.
        attaches=("crowbar-admin-node", "crowbar-managed-node") if is_admin else (),
        wants=tuple(hint_name(network.name, family) for family in (4, 6)),
        flags=frozenset({Flag.IMPLICIT, Flag.MILESTONE}),
        # In the template, so that a change of the network is a changed input of all its noderoles.
        template={"network": {network.name: _facts(network)}},
    )


def _facts(network: Network) -> JsonObject:
    """Return what a node needs to know of the network, besides its own addresses."""
    return {
        "category": network.category.value,
        "vlan": network.vlan,
        "v4_subnet": None if network.v4_subnet is None else str(network.v4_subnet),
        "v6_subnet": None if network.v6_subnet is None else str(network.v6_subnet),
        "routers": [str(router.address) for router in network.routers],
    }


def _attribs(network: Network) -> list[Attrib]:
    hints = [
        Attrib(
            name=hint_name(network.name, family),
            barclamp=BARCLAMP,
            map=hint_path(network.name, family),
            description=f"The IPv{family} address that the node should have on network {network.name}",
            schema={"type": "string", "pattern": _ADDRESS_PATTERNS[family]},
        )
        for family in (4, 6)
    ]
    addresses = Attrib(
        name=f"network-{network.name}-addresses",
        barclamp=BARCLAMP,
        map=("network", network.name, "addresses"),
        role=role_name(network.name),
        description=f"The addresses of the node on network {network.name}, with their prefixes",
    )
    return [*hints, addresses]


def with_changes(network: Network, changes: Mapping[str, object]) -> Network:
    """Return the network with some values changed; raise Invalid if it breaks a rule then."""
    return check_network(replace(network, **changes))  # type: ignore[arg-type]  # the names are ours
