"""The state that DHCP servers serve, and its conversion to and from the configuration of ISC Kea.

The state is the subnets, with the pools for machines that nobody knows, and a reservation for every MAC of every node.
What is rendered here is read back from the running server and must be equal. Everything is checked against an
allow-list before it is rendered. Speaking to Kea is in `provision/kea.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from itertools import product

from rackwright.domain.architectures import Architecture
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.names import check_mac, check_node_name
from rackwright.domain.networks.dhcp_hosts import (
    DhcpHost,
    Reservation,
    as_list,
    as_mapping,
    host_context,
    read_generation,
    read_hosts,
    read_pools,
    read_reservation,
    sort_hosts,
)
from rackwright.domain.networks.networks import check_network_name

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

FOR_EVER = 2**31 - 1
RETRY_MILLISECONDS = 2000
LEASE_SECONDS = 900
"""How long a lease lasts: short, because an unknown machine soon becomes a node with an address of its own."""

DECLINED_SECONDS = 2 * LEASE_SECONDS
"""How long an address is kept aside that a client declined, since somebody else uses it. Kea's own day would let a
stranger who declines them all keep a pool, and each node's own address, from everybody for that day."""

IPXE_BIOS = "undionly.kpxe"
"""What a BIOS fetches. UEFI does not tell DHCP whether it starts signed programs only, so all of it gets shim, which is
signed."""
HTTP_CLIENT = "HTTPClient"
"""What firmware that boots by HTTP says it is, and wants to hear."""


def loader_path(architecture: Architecture) -> str:
    """Return the path on the server of what UEFI fetches by HTTP: in the image, where the next loader is beside it."""
    return f"/files/{architecture.sledgehammer}/{architecture.shim}"


@dataclass(frozen=True)
class DhcpSubnet:
    """An IPv4 subnet that DHCP serves."""

    id: int
    network: str
    subnet: IPv4Network
    pools: tuple[tuple[IPv4Address, IPv4Address], ...] = ()
    """First and last address of each range for machines that nobody knows yet."""
    routers: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True)
class DhcpState:
    """Everything that a DHCP server serves. An equal state is served by an equal server."""

    generation: int = 0
    subnets: tuple[DhcpSubnet, ...] = ()
    hosts: tuple[DhcpHost[IPv4Address], ...] = ()
    """Nodes without a MAC are not here: nothing can be served to them."""


def check_interface(name: str) -> str:
    if not _INTERFACE.fullmatch(name):
        raise Invalid(f"{name[:40]!r} is no name of a network interface.")
    return name


# --- as Kea's configuration


@dataclass(frozen=True)
class KeaHost:
    """The part of Kea's configuration that belongs to its host, and not to what is served."""

    control_socket: str
    leases: str
    interfaces: tuple[str, ...] = ()
    addresses: tuple[IPv4Address, ...] = ()
    """This server's own addresses on those interfaces."""
    http_port: int = 80
    dns: IPv4Address | None = None
    boots: bool = True
    """Whether machines are told what to boot: not where this server has an address for them in IPv6 alone."""

    def server_on(self, subnet: IPv4Network) -> IPv4Address | None:
        """Return the address at which machines of a subnet find what they boot; None: nowhere."""
        if not self.boots:
            return None
        in_subnet = [address for address in self.addresses if address in subnet]
        return next(iter(in_subnet or self.addresses), None)


def render_kea_config(state: DhcpState, kea: KeaHost) -> JsonObject:
    """Return the whole configuration of a Kea DHCPv4 server."""
    return {
        "Dhcp4": {
            "control-socket": {"socket-type": "unix", "socket-name": kea.control_socket},
            "interfaces-config": {
                "interfaces": [*map(check_interface, kea.interfaces)],
                "re-detect": True,
                # An interface without a carrier (a switch that boots, a bridge without a machine) is tried until it has
                # one: Kea would else never listen there.
                "service-sockets-max-retries": FOR_EVER,
                "service-sockets-retry-wait-time": RETRY_MILLISECONDS,
            },
            "lease-database": {"type": "memfile", "persist": True, "name": kea.leases, "lfc-interval": 3600},
            "loggers": [
                {"name": "kea-dhcp4", "severity": "WARN", "output_options": [{"output": "stdout", "flush": True}]}
            ],
            "user-context": {"generation": state.generation},
            "authoritative": True,
            "valid-lifetime": LEASE_SECONDS,
            "decline-probation-period": DECLINED_SECONDS,
            # A machine may ask from any of its interfaces, and gets the one address that it has there.
            "ip-reservations-unique": False,
            "host-reservation-identifiers": ["hw-address"],
            "reservations-global": True,
            "reservations-in-subnet": True,
            # No address of a node is ever in a pool, so Kea need not check whether it is.
            "reservations-out-of-pool": True,
            "match-client-id": False,
            # Kea takes no empty list of classes.
            **({"client-classes": [*_client_classes(kea), *_http_classes(state, kea)]} if kea.boots else {}),
            "reservations": [
                {
                    "hw-address": check_mac(mac),
                    "hostname": check_node_name(host.node),
                    "user-context": host_context(host),
                }
                for host in state.hosts
                for mac in host.macs
            ],
            "subnet4": [_render_subnet(subnet, state.hosts, kea) for subnet in state.subnets],
        }
    }


def _client_classes(kea: KeaHost) -> list[Json]:
    """Return what clients boot, by the kind of client. iPXE itself fills in the address of this server and its MAC."""
    url = f"http://${{next-server}}:{kea.http_port}/boot/${{netX/mac:hexhyp}}"
    by_firmware = (
        ("bios", "option[93].hex == 0x0000", IPXE_BIOS),
        *(
            (f"uefi-{architecture}", _is_client(architecture.tftp_clients), architecture.shim)
            for architecture in Architecture
        ),
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


def _is_client(numbers: Sequence[int]) -> str:
    """Return the test for clients of one of these kinds, as DHCP numbers them."""
    return f"({' or '.join(f'option[93].hex == 0x{number:04x}' for number in numbers)})"


def _http_class(architecture: Architecture, subnet: DhcpSubnet) -> str:
    """Return the name of the class of firmware that boots by HTTP."""
    return f"http-{architecture}-{subnet.id}"


def _http_classes(state: DhcpState, kea: KeaHost) -> list[Json]:
    """Return what firmware that boots by HTTP is told: a URL, in which is the address of this server on its subnet.

    Such a class is looked at only once the subnet of a client is known, which requires it.
    """
    is_http = f"substring(option[60].hex, 0, {len(HTTP_CLIENT)}) == '{HTTP_CLIENT}'"
    classes: list[Json] = []
    for subnet, architecture in product(state.subnets, Architecture):
        server = kea.server_on(subnet.subnet)
        if server is not None:
            classes.append(
                {
                    "name": _http_class(architecture, subnet),
                    "only-if-required": True,
                    "test": f"not member('ipxe') and {is_http} and {_is_client(architecture.http_clients)}",
                    "boot-file-name": f"http://{server}:{kea.http_port}{loader_path(architecture)}",
                    "option-data": [{"name": "vendor-class-identifier", "data": HTTP_CLIENT, "always-send": True}],
                }
            )
    return classes


def _render_subnet(subnet: DhcpSubnet, hosts: Sequence[DhcpHost[IPv4Address]], kea: KeaHost) -> JsonObject:
    server = kea.server_on(subnet.subnet)
    options: list[Json] = []
    if subnet.routers:
        options.append({"name": "routers", "data": ", ".join(map(str, subnet.routers))})
    if kea.dns is not None:
        options.append({"name": "domain-name-servers", "data": str(kea.dns)})
    pools: list[Json] = [{"pool": f"{first} - {last}"} for first, last in subnet.pools]
    reservations: list[Json] = [
        {
            "hw-address": check_mac(mac),
            "ip-address": str(address),
            "hostname": check_node_name(host.node),
            "user-context": host_context(host),
        }
        for host in hosts
        for address in host.addresses
        if address in subnet.subnet
        for mac in host.macs
    ]
    rendered: JsonObject = {
        "id": subnet.id,
        "subnet": str(subnet.subnet),
        "user-context": {"network": check_network_name(subnet.network)},
        "pools": pools,
        "option-data": options,
        "reservations": reservations,
    }
    if server is not None:
        rendered["next-server"] = str(server)
        rendered["require-client-classes"] = [_http_class(architecture, subnet) for architecture in Architecture]
    return rendered


# --- from Kea's configuration


def parse_kea_config(config: Mapping[str, object]) -> DhcpState:
    """Return the state that a server with this configuration serves, in the order of `sorted_state`."""
    dhcp4 = as_mapping(config.get("Dhcp4"))
    subnets = [as_mapping(subnet) for subnet in as_list(dhcp4.get("subnet4"))]
    everywhere = map(_read_reservation, as_list(dhcp4.get("reservations")))
    in_subnets = (_read_reservation(entry) for subnet in subnets for entry in as_list(subnet.get("reservations")))
    return sorted_state(
        DhcpState(
            generation=read_generation(dhcp4),
            subnets=tuple(_parse_subnet(subnet) for subnet in subnets),
            hosts=read_hosts(everywhere, in_subnets, IPv4Address),
        )
    )


def sorted_state(state: DhcpState) -> DhcpState:
    """Return the same state in the order in which two states are compared."""
    subnets = tuple(sorted(state.subnets, key=lambda subnet: subnet.id))
    return replace(state, subnets=subnets, hosts=sort_hosts(state.hosts))


def _read_reservation(value: object) -> Reservation:
    entry = as_mapping(value)
    addresses = [entry["ip-address"]] if "ip-address" in entry else []
    return read_reservation(entry, str(entry.get("hw-address")), addresses)


def _parse_subnet(subnet: Mapping[str, object]) -> DhcpSubnet:
    id = subnet.get("id")
    assert isinstance(id, int)
    routers = [
        IPv4Address(text.strip())
        for option in map(as_mapping, as_list(subnet.get("option-data")))
        if option.get("name") == "routers"
        for text in str(option["data"]).split(",")
    ]
    return DhcpSubnet(
        id,
        str(as_mapping(subnet.get("user-context")).get("network")),
        IPv4Network(str(subnet.get("subnet"))),
        read_pools(subnet, IPv4Address),
        tuple(routers),
    )
