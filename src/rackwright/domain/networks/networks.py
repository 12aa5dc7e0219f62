"""Networks: their subnets, ranges and routers, the rules these obey, and which address a node should get.

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
"""So that `hint-<name>-v4addr` and `network-<name>` are names themselves."""
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
MAX_RANGES = 64
MAX_ROUTERS = 16

BARCLAMP = "networks"
"""The barclamp of the roles that networks make. It lies on no disk: it says what the database has."""
JIG = "network"
HINTS = "hint"
"""Where in a node's hint the wishes for addresses are: `hint/<network>/v4addr`."""


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
    """Admin nodes; where a network has none of these, they share with the others."""
    DYNAMIC = "dynamic"
    """Whoever asks by DHCP and has no address of his own: machines that nobody knows yet. Never allocated."""


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
    """Of several of one family the lowest is the default."""


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
        """The ranges from which a node gets an address, in the order in which they are tried."""
        usable = sorted((one for one in self.ranges if one.family == family), key=lambda one: int(one.first))
        own = [one for one in usable if admin and one.use is Use.ADMIN]
        return own or [one for one in usable if one.use is Use.HOST]

    def range_of(self, address: Address) -> Range | None:
        return next((one for one in self.ranges if address in one), None)


# --- reading what people wrote


def parse_address(text: str, pointer: str = "") -> Address:
    try:
        if "%" not in text:  # a zone is of one host only
            return ip_address(text)
    except ValueError:
        pass
    raise Invalid(f"{text[:60]!r} is no IP address; write it like 10.0.0.10 or fd00::10.", pointer)


def parse_subnet(text: str, family: int, pointer: str) -> Subnet:
    """A subnet in which machines can be: not so small that nothing fits, and of addresses for single hosts."""
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


# --- what must hold


def check_network(network: Network) -> Network:
    """Raise Invalid, with a pointer, for the first rule that the network breaks by itself."""
    check_network_name(network.name)
    if network.vlan is not None and not 1 <= network.vlan <= 4094:
        raise Invalid(f"{network.vlan} is no VLAN; they go from 1 to 4094.", "/vlan")
    if not network.subnets:
        raise Invalid(f"Network {network.name!r} needs an IPv4 or an IPv6 subnet.", "/v4_subnet")
    if len(network.ranges) > MAX_RANGES or len(network.routers) > MAX_ROUTERS:
        raise Invalid(f"A network has at most {MAX_RANGES} ranges and {MAX_ROUTERS} routers.", "/ranges")
    for place, one in enumerate(network.ranges):
        _check_range(network, one, network.ranges[:place], f"/ranges/{place}")
    for place, router in enumerate(network.routers):
        _check_router(network, router, network.routers[:place], f"/routers/{place}")
    return network


def _check_range(network: Network, one: Range, others: Sequence[Range], pointer: str) -> None:
    check_network_name(one.name, f"{pointer}/name")
    if any(other.name == one.name for other in others):
        raise Invalid(f"Network {network.name!r} has two ranges named {one.name!r}.", f"{pointer}/name")
    if one.first.version != one.last.version:
        raise Invalid(f"{one.first} and {one.last} are of two families; a range is of one.", f"{pointer}/last")
    for word, address in (("first", one.first), ("last", one.last)):
        _check_host(network, address, f"{pointer}/{word}")
    if int(one.last) < int(one.first):
        raise Invalid(f"Range {one.name!r} ends at {one.last}, before it begins at {one.first}.", f"{pointer}/last")
    for other in others:
        if one.overlaps(other):
            raise Invalid(
                f"Range {one.name!r} ({one.first} to {one.last}) overlaps range {other.name!r} ({other.first} to "
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
    """The address must be one that a machine in the network's subnet can have."""
    subnet = network.subnet(address.version)
    if subnet is None:
        raise Invalid(f"{address}: network {network.name!r} has no IPv{address.version} subnet.", pointer)
    if address not in subnet:
        raise Invalid(f"{address} is not in {subnet}, the subnet of network {network.name!r}.", pointer)
    if address == subnet.network_address or (address.version == 4 and address == subnet.broadcast_address):
        raise Invalid(f"{address} stands for all of {subnet}; no machine can have it.", pointer)


def check_overlap(network: Network, others: Iterable[Network]) -> None:
    """Subnets of two networks never share an address, so that an address alone says where it is."""
    for other in others:
        for subnet in network.subnets:
            taken = other.subnet(subnet.version)
            if other.name != network.name and taken is not None and subnet.overlaps(taken):
                raise Invalid(
                    f"{subnet} overlaps {taken}, which network {other.name!r} has.", f"/v{subnet.version}_subnet"
                )


# --- which address


def check_wish(network: Network, address: Address, pointer: str = "/address", *, router: bool = False) -> None:
    """Refuse an address that nobody may ask for. One outside of all ranges may be asked for.

    `router`: it is found to have that address, so it may well be the router itself.
    """
    _check_host(network, address, pointer)
    if not router and any(one.address == address for one in network.routers):
        raise Invalid(f"{address} is a router of network {network.name!r}.", pointer)
    inside = network.range_of(address)
    if inside is not None and inside.use is Use.DYNAMIC:
        raise Invalid(
            f"{address} lies in range {inside.name!r}, which DHCP gives to machines that nobody knows yet.", pointer
        )


def same_host_part(network: Network, known: Address, of: Subnet) -> Address | None:
    """The address with the host part that `known` has in subnet `of`; None if it does not fit in here."""
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


def hint_map(network: str, family: int) -> tuple[str, ...]:
    return (HINTS, network, f"v{family}addr")


_ADDRESS_PATTERNS = {4: r"^[0-9.]{7,15}(?![\s\S])", 6: r"^[0-9a-fA-F:.]{2,45}(?![\s\S])"}


def networks_barclamp(networks: Iterable[Network]) -> Barclamp:
    """The roles and attribs that there are because there are these networks."""
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
    """What a node needs to know of the network, beside its own addresses."""
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
            map=hint_map(network.name, family),
            description=f"The IPv{family} address that the node should have on network {network.name}",
            schema={"type": "string", "pattern": _ADDRESS_PATTERNS[family]},
        )
        for family in (4, 6)
    ]
    found = Attrib(
        name=f"network-{network.name}-addresses",
        barclamp=BARCLAMP,
        map=("network", network.name, "addresses"),
        role=role_name(network.name),
        description=f"The addresses of the node on network {network.name}, with their prefixes",
    )
    return [*hints, found]


def changed(network: Network, changes: Mapping[str, object]) -> Network:
    """The network with other values, checked."""
    return check_network(replace(network, **changes))  # type: ignore[arg-type]  # the names are ours
