"""The state that DHCPv6 servers serve, and its conversion to and from the configuration of ISC Kea.

The same as `dhcp.py` for IPv4, with two differences. Kea never speaks to machines itself: a relay of ours does
(`provision/dhcp6_relay.py`), which names every machine by its MAC whatever the machine calls itself, so reservations
are for that name. And machines are told a URL instead of a file and a server.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, IPv6Network

from rackwright.domain.architectures import Architecture
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.names import check_mac, check_node_name
from rackwright.domain.networks.dhcp import (
    DECLINED_SECONDS,
    FOR_EVER,
    LEASE_SECONDS,
    RETRY_MILLISECONDS,
    DhcpState,
    loader_path,
)
from rackwright.domain.networks.dhcp6_messages import duid_of_mac
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

KEA_PORT, RELAY_PORT = 847, 846
"""Where Kea and the relay hear each other on the loopback address; ports that only root can have."""
KEA_INTERFACE = "lo/::1"

OPTION_DNS, OPTION_VENDOR_CLASS, OPTION_BOOT_URL, OPTION_ARCHITECTURE, OPTION_USER_CLASS = 23, 16, 59, 61, 15
HTTP_CLIENT = b"HTTPClient"
HTTP_VENDOR = 343
"""The enterprise number that firmware which boots by HTTP gives for itself, and expects in the answer."""


@dataclass(frozen=True)
class Dhcp6Subnet:
    """An IPv6 subnet that DHCP serves."""

    id: int
    network: str
    subnet: IPv6Network
    pools: tuple[tuple[IPv6Address, IPv6Address], ...] = ()
    """First and last address of each range for machines that nobody knows yet."""


@dataclass(frozen=True)
class Dhcp6State:
    """Everything that a DHCPv6 server serves."""

    generation: int = 0
    subnets: tuple[Dhcp6Subnet, ...] = ()
    hosts: tuple[DhcpHost[IPv6Address], ...] = ()
    """Empty where no subnet is served. Nodes without a MAC are not here: nothing can be served to them."""


@dataclass(frozen=True)
class DhcpStates:
    """What the DHCP servers of a host serve, for both families: both are published, or neither is recorded."""

    v4: DhcpState = field(default_factory=DhcpState)
    v6: Dhcp6State = field(default_factory=Dhcp6State)

    @property
    def generation(self) -> int:
        """The generation that both serve; the lower one while they differ."""
        return min(self.v4.generation, self.v6.generation) if self.v6.subnets else self.v4.generation


# --- as Kea's configuration


@dataclass(frozen=True)
class Kea6Host:
    """The part of Kea's configuration that belongs to its host, and not to what is served."""

    control_socket: str
    leases: str
    server_id: str
    """Six bytes in hexadecimal: what this server calls itself. Two servers must differ."""
    addresses: tuple[IPv6Address, ...] = ()
    """This server's own addresses on the interfaces that it serves."""
    http_port: int = 80
    dns: IPv6Address | None = None
    boot_addresses: tuple[IPv6Address, ...] | None = None
    """Where machines find what they boot; None: at all of its own addresses."""

    def addresses_in(self, subnet: IPv6Network) -> list[IPv6Address]:
        """Return this server's own addresses in a subnet."""
        return [address for address in self.addresses if address in subnet]

    def boot_server_on(self, subnet: IPv6Network) -> IPv6Address | None:
        """Return the address at which machines of a subnet find what they boot; None: nowhere."""
        offered = self.boot_addresses
        return next((own for own in self.addresses_in(subnet) if offered is None or own in offered), None)


def render_kea6_config(state: Dhcp6State, kea: Kea6Host) -> JsonObject:
    """Return the whole configuration of a Kea DHCPv6 server."""
    return {
        "Dhcp6": {
            "control-socket": {"socket-type": "unix", "socket-name": kea.control_socket},
            "interfaces-config": {
                "interfaces": [KEA_INTERFACE],
                "service-sockets-max-retries": FOR_EVER,
                "service-sockets-retry-wait-time": RETRY_MILLISECONDS,
            },
            "lease-database": {"type": "memfile", "persist": True, "name": kea.leases, "lfc-interval": 3600},
            "loggers": [
                {"name": "kea-dhcp6", "severity": "WARN", "output_options": [{"output": "stdout", "flush": True}]}
            ],
            "server-id": {"type": "LL", "htype": 1, "identifier": kea.server_id, "persist": False},
            "user-context": {"generation": state.generation},
            "valid-lifetime": LEASE_SECONDS,
            "decline-probation-period": DECLINED_SECONDS,
            "preferred-lifetime": LEASE_SECONDS * 2 // 3,
            "renew-timer": LEASE_SECONDS // 3,
            "rebind-timer": LEASE_SECONDS * 2 // 3,
            "ip-reservations-unique": False,
            "host-reservation-identifiers": ["duid"],
            "reservations-global": True,
            "reservations-in-subnet": True,
            "reservations-out-of-pool": True,
            "client-classes": [*_client_classes(state, kea)],
            "reservations": [
                {"duid": _duid(mac), "hostname": check_node_name(host.node), "user-context": host_context(host)}
                for host in state.hosts
                for mac in host.macs
            ],
            "subnet6": [_render_subnet(subnet, state.hosts, kea) for subnet in state.subnets],
        }
    }


def _client_classes(state: Dhcp6State, kea: Kea6Host) -> Iterator[Json]:
    """Give what clients boot, by the kind of client and the subnet: the URL has the address of this server there.

    The relay gives that address with each message, so it tells the subnet.
    """
    ipxe = f"substring(option[{OPTION_USER_CLASS}].hex, 2, 4) == 'iPXE'"
    vendor_class = HTTP_VENDOR.to_bytes(4, "big") + len(HTTP_CLIENT).to_bytes(2, "big") + HTTP_CLIENT
    yield {"name": "ipxe", "test": ipxe}
    for subnet in state.subnets:
        server = kea.boot_server_on(subnet.subnet)
        if server is None:
            continue
        here = f"({' or '.join(f'relay6[0].linkaddr == {own}' for own in kea.addresses_in(subnet.subnet))})"
        # iPXE itself fills in its MAC.
        script = f"http://[{server}]:{kea.http_port}/boot/${{netX/mac:hexhyp}}"
        yield _boot_class(f"ipxe-{subnet.id}", f"member('ipxe') and {here}", script)
        for architecture in Architecture:
            test = f"not member('ipxe') and {here} and {_is_one_of(architecture.tftp_clients)}"
            yield _boot_class(f"uefi-{architecture}-{subnet.id}", test, f"tftp://[{server}]/{architecture.shim}")
            test = f"not member('ipxe') and {here} and {_is_one_of(architecture.http_clients)}"
            url = f"http://[{server}]:{kea.http_port}{loader_path(architecture)}"
            answer: JsonObject = {
                "code": OPTION_VENDOR_CLASS,
                "space": "dhcp6",
                "csv-format": False,
                "data": vendor_class.hex().upper(),
                "always-send": True,
            }
            yield _boot_class(f"http-{architecture}-{subnet.id}", test, url, answer)


def _is_one_of(clients: Sequence[int]) -> str:
    tests = [f"option[{OPTION_ARCHITECTURE}].hex == 0x{number:04x}" for number in clients]
    return f"({' or '.join(tests)})"


def _boot_class(name: str, test: str, url: str, *more: JsonObject) -> JsonObject:
    # As bytes, because a comma in a text would end it.
    option: JsonObject = {
        "code": OPTION_BOOT_URL,
        "space": "dhcp6",
        "csv-format": False,
        "data": url.encode("ascii").hex().upper(),
    }
    return {"name": name, "test": test, "option-data": [option, *more]}


def _render_subnet(subnet: Dhcp6Subnet, hosts: Sequence[DhcpHost[IPv6Address]], kea: Kea6Host) -> JsonObject:
    options: list[Json] = []
    if kea.dns is not None:
        options.append({"code": OPTION_DNS, "space": "dhcp6", "data": str(kea.dns)})
    return {
        "id": subnet.id,
        "subnet": str(subnet.subnet),
        "user-context": {"network": check_network_name(subnet.network)},
        "pools": [{"pool": f"{first} - {last}"} for first, last in subnet.pools],
        "option-data": options,
        "reservations": [
            {
                "duid": _duid(mac),
                "ip-addresses": [str(address)],
                "hostname": check_node_name(host.node),
                "user-context": host_context(host),
            }
            for host in hosts
            for address in host.addresses
            if address in subnet.subnet
            for mac in host.macs
        ],
    }


def _duid(mac: str) -> str:
    return duid_of_mac(check_mac(mac)).hex(":")


# --- from Kea's configuration


def parse_kea6_config(config: Mapping[str, object]) -> Dhcp6State:
    """Return the state that a server with this configuration serves, in the order of `sorted_state6`."""
    dhcp6 = as_mapping(config.get("Dhcp6"))
    subnets = [as_mapping(subnet) for subnet in as_list(dhcp6.get("subnet6"))]
    everywhere = map(_read_reservation, as_list(dhcp6.get("reservations")))
    in_subnets = (_read_reservation(entry) for subnet in subnets for entry in as_list(subnet.get("reservations")))
    return sorted_state6(
        Dhcp6State(
            generation=read_generation(dhcp6),
            subnets=tuple(_parse_subnet(subnet) for subnet in subnets),
            hosts=read_hosts(everywhere, in_subnets, IPv6Address),
        )
    )


def sorted_state6(state: Dhcp6State) -> Dhcp6State:
    """Return the same state in the order in which two states are compared."""
    subnets = tuple(sorted(state.subnets, key=lambda subnet: subnet.id))
    return replace(state, subnets=subnets, hosts=sort_hosts(state.hosts))


def _read_reservation(value: object) -> Reservation:
    entry = as_mapping(value)
    return read_reservation(entry, _mac(entry), as_list(entry.get("ip-addresses")))


def _mac(reservation: Mapping[str, object]) -> str:
    """Return the MAC that a reservation is for; the whole DUID if it is not one of ours."""
    duid = str(reservation.get("duid")).lower()
    mac = duid[-17:]
    return mac if duid == f"00:03:00:01:{mac}" else duid


def _parse_subnet(subnet: Mapping[str, object]) -> Dhcp6Subnet:
    id = subnet.get("id")
    assert isinstance(id, int)
    return Dhcp6Subnet(
        id,
        str(as_mapping(subnet.get("user-context")).get("network")),
        IPv6Network(str(subnet.get("subnet"))),
        read_pools(subnet, IPv6Address),
    )
