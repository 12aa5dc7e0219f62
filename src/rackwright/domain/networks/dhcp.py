"""What DHCP servers serve: subnets with what of them is for strangers, and a reservation for every MAC of every node.

And the same as the configuration of ISC Kea, both ways: what is rendered here is read back from the running server and
must be equal. Everything is checked against an allow-list on its way in. Speaking to Kea is in `provision/kea.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.names import check_mac, check_node_name
from rackwright.domain.networks.networks import check_network_name

_BOOTENV = re.compile(r"[a-z0-9][a-z0-9.-]{0,80}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

FOR_EVER = 2**31 - 1
RETRY_MILLISECONDS = 2000
LEASE_SECONDS = 900
"""How long a lease lasts: short, because a stranger soon becomes somebody with an address of his own."""

IPXE_BIOS, IPXE_X64, IPXE_ARM64 = "undionly.kpxe", "ipxe.efi", "ipxe-arm64.efi"
"""What TFTP has for firmware, by its kind."""


@dataclass(frozen=True)
class DhcpSubnet:
    id: int
    network: str
    subnet: IPv4Network
    pools: tuple[tuple[IPv4Address, IPv4Address], ...] = ()
    """First and last of what machines get that nobody knows."""
    routers: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True)
class DhcpHost:
    node: str
    bootenv: str
    macs: tuple[str, ...] = ()
    addresses: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True)
class DhcpState:
    """All of it. An equal state is served by an equal server."""

    generation: int = 0
    subnets: tuple[DhcpSubnet, ...] = ()
    hosts: tuple[DhcpHost, ...] = ()
    """Those without a MAC are not here: nothing can be served to them."""


def check_interface(name: str) -> str:
    if not _INTERFACE.fullmatch(name):
        raise Invalid(f"{name[:40]!r} is no name of a network interface.")
    return name


def check_bootenv(name: str) -> str:
    if not _BOOTENV.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is no bootenv.")
    return name


def share(
    pools: Sequence[tuple[IPv4Address, IPv4Address]], place: int, of: int
) -> tuple[tuple[IPv4Address, IPv4Address], ...]:
    """The part of the pools that one of several servers gives out: so two of them never give out one address."""
    parts: list[tuple[IPv4Address, IPv4Address]] = []
    for first, last in pools:
        size = int(last) - int(first) + 1
        start, end = size * place // of, size * (place + 1) // of
        if start < end:
            parts.append((first + start, first + (end - 1)))
    return tuple(parts)


# --- as Kea's configuration


@dataclass(frozen=True)
class KeaPlace:
    """What of the configuration belongs to the host, and not to what is served."""

    control_socket: str
    leases: str
    interfaces: tuple[str, ...] = ()
    addresses: tuple[IPv4Address, ...] = ()
    """This server's own on them."""
    http_port: int = 80
    dns: IPv4Address | None = None

    def server_on(self, subnet: IPv4Network) -> IPv4Address | None:
        """The address by which machines of a subnet reach this server."""
        here = [address for address in self.addresses if address in subnet]
        return next(iter(here or self.addresses), None)


def render(state: DhcpState, place: KeaPlace) -> JsonObject:
    """The whole configuration of a Kea DHCPv4 server."""
    return {
        "Dhcp4": {
            "control-socket": {"socket-type": "unix", "socket-name": place.control_socket},
            "interfaces-config": {
                "interfaces": [*map(check_interface, place.interfaces)],
                "re-detect": True,
                # An interface without a carrier (a switch that boots, a bridge without a machine) is tried until it has
                # one: Kea would else never listen there.
                "service-sockets-max-retries": FOR_EVER,
                "service-sockets-retry-wait-time": RETRY_MILLISECONDS,
            },
            "lease-database": {"type": "memfile", "persist": True, "name": place.leases, "lfc-interval": 3600},
            "loggers": [
                {"name": "kea-dhcp4", "severity": "WARN", "output_options": [{"output": "stdout", "flush": True}]}
            ],
            "user-context": {"generation": state.generation},
            "authoritative": True,
            "valid-lifetime": LEASE_SECONDS,
            # A machine may ask from any of its interfaces, and gets the one address that it has there.
            "ip-reservations-unique": False,
            "host-reservation-identifiers": ["hw-address"],
            "reservations-global": True,
            "reservations-in-subnet": True,
            # No address of a node is ever in a pool, so nobody has to look whether it is.
            "reservations-out-of-pool": True,
            "match-client-id": False,
            "client-classes": _classes(place),
            "reservations": [
                {"hw-address": check_mac(mac), "hostname": check_node_name(host.node), "user-context": _context(host)}
                for host in state.hosts
                for mac in host.macs
            ],
            "subnet4": [_subnet(one, state.hosts, place) for one in state.subnets],
        }
    }


def _classes(place: KeaPlace) -> list[Json]:
    """What to boot, by who asks. iPXE fills in the address of this server and its own MAC by itself."""
    url = f"http://${{next-server}}:{place.http_port}/boot/${{netX/mac:hexhyp}}"
    by_firmware = (
        ("bios", "option[93].hex == 0x0000", IPXE_BIOS),
        ("uefi-x64", "(option[93].hex == 0x0007 or option[93].hex == 0x0009)", IPXE_X64),
        ("uefi-arm64", "option[93].hex == 0x000b", IPXE_ARM64),
    )
    ipxe: JsonObject = {
        "name": "ipxe",
        "test": "option[175].exists or option[77].hex == 'iPXE'",
        "boot-file-name": url,
        # Suboption 176: there is no second DHCP server for boots, so it need not wait three seconds for one.
        "option-data": [{"code": 175, "space": "dhcp4", "csv-format": False, "data": "B00101", "always-send": True}],
    }
    firmware: list[Json] = [
        {"name": name, "test": f"not member('ipxe') and {test}", "boot-file-name": file}
        for name, test, file in by_firmware
    ]
    return [ipxe, *firmware]


def _subnet(one: DhcpSubnet, hosts: Sequence[DhcpHost], place: KeaPlace) -> JsonObject:
    server = place.server_on(one.subnet)
    options: list[Json] = []
    if one.routers:
        options.append({"name": "routers", "data": ", ".join(map(str, one.routers))})
    if place.dns is not None:
        options.append({"name": "domain-name-servers", "data": str(place.dns)})
    pools: list[Json] = [{"pool": f"{first} - {last}"} for first, last in one.pools]
    reservations: list[Json] = [
        {
            "hw-address": check_mac(mac),
            "ip-address": str(address),
            "hostname": check_node_name(host.node),
            "user-context": _context(host),
        }
        for host in hosts
        for address in host.addresses
        if address in one.subnet
        for mac in host.macs
    ]
    rendered: JsonObject = {
        "id": one.id,
        "subnet": str(one.subnet),
        "user-context": {"network": check_network_name(one.network)},
        "pools": pools,
        "option-data": options,
        "reservations": reservations,
    }
    if server is not None:
        rendered["next-server"] = str(server)
    return rendered


def _context(host: DhcpHost) -> JsonObject:
    return {"node": check_node_name(host.node), "bootenv": check_bootenv(host.bootenv)}


# --- and back


def parse(config: Mapping[str, object]) -> DhcpState:
    """The state that a server with this configuration serves, in the order of `ordered`."""
    whole = _map(config.get("Dhcp4"))
    subnets = [_map(one) for one in _list(whole.get("subnet4"))]
    macs: dict[_Key, list[str]] = {}
    for one in map(_map, _list(whole.get("reservations"))):
        macs.setdefault(_key(one), []).append(str(one.get("hw-address")))
    reserved: dict[_Key, dict[str, list[str]]] = {}
    for subnet in subnets:
        for one in map(_map, _list(subnet.get("reservations"))):
            by_address = reserved.setdefault(_key(one), {})
            by_address.setdefault(str(one.get("ip-address")), []).append(str(one.get("hw-address")))
    return ordered(
        DhcpState(
            generation=_generation(_map(whole.get("user-context"))),
            subnets=tuple(_parse_subnet(one) for one in subnets),
            hosts=tuple(
                DhcpHost(
                    key[0],
                    key[1],
                    tuple(of),
                    # An address that only some of its MACs get is not what was rendered.
                    tuple(
                        IPv4Address(address)
                        for address, given in reserved.get(key, {}).items()
                        if sorted(given) == sorted(of)
                    ),
                )
                for key, of in macs.items()
            ),
        )
    )


def ordered(state: DhcpState) -> DhcpState:
    """The same state, in the one order by which two of them are compared."""
    return replace(
        state,
        subnets=tuple(sorted(state.subnets, key=lambda one: one.id)),
        hosts=tuple(
            replace(one, macs=tuple(sorted(one.macs)), addresses=tuple(sorted(one.addresses)))
            for one in sorted(state.hosts, key=lambda one: one.node)
        ),
    )


_Key = tuple[str, str, str]


def _key(reservation: Mapping[str, object]) -> _Key:
    context = _map(reservation.get("user-context"))
    return str(context.get("node")), str(context.get("bootenv")), str(reservation.get("hostname"))


def _generation(context: Mapping[str, object]) -> int:
    found = context.get("generation", 0)
    return found if isinstance(found, int) else 0


def _parse_subnet(one: Mapping[str, object]) -> DhcpSubnet:
    id = one.get("id")
    assert isinstance(id, int)
    ends = [str(_map(pool)["pool"]).split("-") for pool in _list(one.get("pools"))]
    routers = [
        IPv4Address(text.strip())
        for option in map(_map, _list(one.get("option-data")))
        if option.get("name") == "routers"
        for text in str(option["data"]).split(",")
    ]
    return DhcpSubnet(
        id,
        str(_map(one.get("user-context")).get("network")),
        IPv4Network(str(one.get("subnet"))),
        tuple((IPv4Address(first.strip()), IPv4Address(last.strip())) for first, last in ends),
        tuple(routers),
    )


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
