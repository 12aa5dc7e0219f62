"""Reading netplan v2: the part of it that Rackwright has, with two extensions of its own.

The extensions: an ethernet is matched by `match: {lldp: {switch: leaf-1, port: Ethernet7}}`, and an address is
`{network: storage}`, the one that the node has on that network. What netplan has and Rackwright has not is refused by
name, so that nothing which somebody wrote is silently left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import TypeVar

from rackwright.domain.barclamps.marked_values import MarkedValue
from rackwright.domain.catalogue import Json
from rackwright.domain.installs.documents import (
    BadValue,
    Problems,
    ValueReader,
    line_of,
    read_document,
    take_flag,
    take_number,
    take_word,
)
from rackwright.domain.installs.node_network.devices import (
    ATTRIB,
    Device,
    Kind,
    LinkMatch,
    Reference,
    Route,
    WantedAddress,
)
from rackwright.domain.installs.node_network.values import (
    take_address,
    take_destination,
    take_domain,
    take_interface,
    take_mac,
    take_name,
    take_text,
)

T = TypeVar("T")

SECTIONS = frozenset(kind.value for kind in Kind)
TOP_REFUSED = {
    "wifis": "Rackwright configures no wireless links",
    "tunnels": "Rackwright configures no tunnels; a role of your own can",
    "modems": "Rackwright configures no modems",
    "openvswitch": "Rackwright configures no Open vSwitch; use bridges",
    "vrfs": "Rackwright configures no VRFs",
    "dummy-devices": "Rackwright configures no dummy devices",
    "virtual-ethernets": "Rackwright configures no virtual ethernets",
    "nm-devices": "installed systems have no NetworkManager",
}
DEVICE_REFUSED = {
    "gateway4": "is no longer netplan's: write routes: [{to: default, via: ADDRESS}]",
    "gateway6": "is no longer netplan's: write routes: [{to: default, via: ADDRESS}]",
    "renderer": "is chosen for the whole document",
    "openvswitch": "is not for installed systems here; use bridges",
}
COMMON = frozenset(
    {"addresses", "routes", "nameservers", "mtu", "dhcp4", "dhcp6", "accept-ra", "optional", "macaddress"}
)
OWN_KEYS = {
    Kind.ETHERNET: frozenset({"match", "set-name", "wakeonlan"}),
    Kind.BOND: frozenset({"interfaces", "parameters"}),
    Kind.VLAN: frozenset({"id", "link"}),
    Kind.BRIDGE: frozenset({"interfaces", "parameters"}),
}
BOND_MODES = (
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
)
HASHES = ("layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4")
PARAMETERS: dict[Kind, dict[str, Callable[[Json], Json]]] = {
    Kind.BOND: {
        "mode": take_word(*BOND_MODES),
        "mii-monitor-interval": take_number(1, 60_000),
        "lacp-rate": take_word("slow", "fast"),
        "transmit-hash-policy": take_word(*HASHES),
        "primary": take_name,
    },
    Kind.BRIDGE: {"stp": take_flag, "forward-delay": take_number(2, 30)},
}
take_mtu = take_number(68, 65_535)
"""The smallest is that of IPv4; a device with IPv6 needs 1280."""


def read_network(value: Json) -> tuple[tuple[Device, ...], Problems]:
    """Return the devices that a document declares, in its order, and what is wrong with it."""
    problems = Problems(ATTRIB)
    document = read_document(value, problems)
    return ((), problems) if document is None else (_DocumentReader(problems).read(document), problems)


@dataclass(frozen=True)
class _DocumentReader:
    problems: Problems
    declared: dict[str, Device] = field(default_factory=dict)

    @property
    def values(self) -> ValueReader:
        return ValueReader(self.problems)

    def read(self, document: MarkedValue) -> tuple[Device, ...]:
        top = self.values.mapping(document, "the document")
        if "network" in top:
            self.values.refuse_others(top, {"network"}, "beside network")
            top = self.values.mapping(top["network"], "network")
        for key, value in top.items():
            if key in SECTIONS:
                for name, body in self.values.mapping(value, key).items():
                    self._add_device(name, Kind(key), body)
            else:
                self._check_top(key, value)
        return tuple(self.declared.values())

    def _check_top(self, key: str, value: MarkedValue) -> None:
        if key == "version":
            if value.value != 2:
                self.problems.add("version is 2: this is netplan's only one", line_of(value))
        elif key == "renderer":
            if value.value != "networkd":
                self.problems.add("renderer is networkd: installed systems have no other", line_of(value))
        else:
            known = ", ".join(Kind)
            self.problems.add(f"{key[:40]!r}: {TOP_REFUSED.get(key, f'there are only {known}')}", line_of(value))

    def _add_device(self, name: str, kind: Kind, body: MarkedValue) -> None:
        line = line_of(body)
        try:
            take_name(name)
        except BadValue as error:
            self.problems.add(f"{name[:40]!r} {error}", line)
            return
        if name in self.declared:
            self.problems.add(f"{name} is declared twice; it is among the {self.declared[name].kind} already", line)
            return
        self.declared[name] = self._read_device(name, kind, self.values.mapping(body, name), line)

    def _read_device(self, name: str, kind: Kind, body: Mapping[str, MarkedValue], line: int | None) -> Device:
        for key in body:
            if key in DEVICE_REFUSED:
                self.problems.add(f"{name}: {key} {DEVICE_REFUSED[key]}", line_of(body[key]))
        self.values.refuse_others(body, COMMON | OWN_KEYS[kind], f"in {name}", DEVICE_REFUSED.keys())
        servers = self._mapping_at(body, "nameservers", {"addresses", "search"}, name)
        device = Device(
            name=name,
            kind=kind,
            line=line,
            addresses=tuple(filter(None, map(self._read_address, self._items_at(body, "addresses", name)))),
            routes=tuple(filter(None, (self._read_route(item, name) for item in self._items_at(body, "routes", name)))),
            name_servers=self._take_items(servers, "addresses", take_address, name),
            search_domains=self._take_items(servers, "search", take_domain, name),
            mtu=self.values.take(body, "mtu", take_mtu, None, name),
            dhcp4=self.values.take(body, "dhcp4", take_flag, False, name),
            dhcp6=self.values.take(body, "dhcp6", take_flag, False, name),
            accept_ra=self.values.take(body, "accept-ra", take_flag, None, name),
            optional=self.values.take(body, "optional", take_flag, False, name),
            mac=self.values.take(body, "macaddress", take_mac, "", name),
        )
        return self._with_own_keys(device, body)

    def _with_own_keys(self, device: Device, body: Mapping[str, MarkedValue]) -> Device:
        match device.kind:
            case Kind.ETHERNET:
                return replace(
                    device,
                    match=self._read_match(device.name, body),
                    set_name=self.values.take(body, "set-name", take_name, "", device.name),
                    wake_on_lan=self.values.take(body, "wakeonlan", take_flag, False, device.name),
                )
            case Kind.VLAN:
                return self._read_vlan(device, body)
            case _:
                return self._read_master(device, body)

    def _read_vlan(self, device: Device, body: Mapping[str, MarkedValue]) -> Device:
        for key in ("id", "link"):
            if key not in body:
                self.problems.add(f"{device.name}: a VLAN needs its {key}", device.line)
        parent = self.values.take(body, "link", take_name, "", device.name)
        return replace(
            device,
            vlan_id=self.values.take(body, "id", take_number(1, 4094), 0, device.name),
            parent=Reference(parent, line_of(body["link"])) if parent else None,
        )

    def _read_master(self, device: Device, body: Mapping[str, MarkedValue]) -> Device:
        takers = PARAMETERS[device.kind]
        given = self._mapping_at(body, "parameters", set(takers), device.name)
        parameters: dict[str, Json] = {}
        for key, take in takers.items():
            if key in given:
                value = self.values.take(given, key, take, None, device.name)
                parameters |= {} if value is None else {key: value}
        members = []
        for item in self._items_at(body, "interfaces", device.name):
            name = self.values.take({"interfaces": item}, "interfaces", take_name, "", device.name)
            members += [Reference(name, line_of(item))] if name else []
        return replace(device, members=tuple(members), parameters=parameters)

    def _read_match(self, name: str, body: Mapping[str, MarkedValue]) -> LinkMatch:
        if "match" not in body:
            return LinkMatch(name=name)
        given = self._mapping_at(body, "match", {"macaddress", "name", "lldp"}, name)
        if len(given) != 1:
            self.problems.add(f"{name}: match is by one of macaddress, name or lldp", line_of(body["match"]))
        port = self._mapping_at(given, "lldp", {"switch", "port"}, name)
        if "lldp" in given and not {"switch", "port"} <= port.keys():
            self.problems.add(f"{name}: match by lldp needs the switch and its port", line_of(given["lldp"]))
        return LinkMatch(
            mac=self.values.take(given, "macaddress", take_mac, "", name),
            name=self.values.take(given, "name", take_name, "", name),
            switch=self.values.take(port, "switch", take_text, "", name),
            port=self.values.take(port, "port", take_text, "", name),
        )

    def _read_address(self, item: MarkedValue) -> WantedAddress | None:
        line = line_of(item)
        if not isinstance(item.value, dict):
            literal = self.values.take({"addresses": item}, "addresses", take_interface, None, "an address")
            return None if literal is None else WantedAddress(literal, line=line)
        self.values.refuse_others(item.value, {"network", "family"}, "in an address")
        network = self.values.take(item.value, "network", take_text, "", "an address")
        if not network:
            self.problems.add("an address that is a mapping names its network: {network: NAME}", line)
            return None
        family = self.values.take(item.value, "family", take_family, None, "an address")
        return WantedAddress(network=network, family=family, line=line)

    def _read_route(self, item: MarkedValue, name: str) -> Route | None:
        given = self.values.mapping(item, f"{name}: a route")
        self.values.refuse_others(given, {"to", "via", "metric", "on-link", "table"}, f"in a route of {name}")
        via = self.values.take(given, "via", take_address, None, name)
        if "to" not in given or (given["to"].value == "default" and via is None):
            self.problems.add(f"{name}: a route needs to, and one to default also via", line_of(item))
            return None
        to = self.values.take(given, "to", take_destination, None, name)
        if to is None:
            if via is None or given["to"].value != "default":
                return None
            to = ip_network("0.0.0.0/0" if via.version == 4 else "::/0")
        if via is not None and via.version != to.version:
            self.problems.add(f"{name}: {to} and {via} are of two families", line_of(item))
            return None
        return Route(
            to,
            via,
            metric=self.values.take(given, "metric", take_number(0, 2**32 - 1), None, name),
            on_link=self.values.take(given, "on-link", take_flag, False, name),
            table=self.values.take(given, "table", take_number(1, 2**32 - 1), None, name),
            line=line_of(item),
        )

    def _mapping_at(
        self, body: Mapping[str, MarkedValue], key: str, known: set[str], name: str
    ) -> Mapping[str, MarkedValue]:
        if key not in body:
            return {}
        given = self.values.mapping(body[key], f"{name}: {key}")
        self.values.refuse_others(given, known, f"in {key} of {name}")
        return given

    def _items_at(self, body: Mapping[str, MarkedValue], key: str, name: str) -> list[MarkedValue]:
        return self.values.items(body[key], f"{name}: {key}") if key in body else []

    def _take_items(
        self, body: Mapping[str, MarkedValue], key: str, take: Callable[[Json], T], name: str
    ) -> tuple[T, ...]:
        taken = (self.values.take({key: item}, key, take, None, name) for item in self._items_at(body, key, name))
        return tuple(item for item in taken if item is not None)


def take_family(value: Json) -> int:
    if value in (4, 6) and isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BadValue("is neither 4 nor 6")
