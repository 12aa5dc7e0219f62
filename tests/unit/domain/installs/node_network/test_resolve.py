"""Netplan documents against a machine: what is refused, with its line and the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.installs.node_network.scene import BOND, BRIDGE, request

from rackwright.domain.catalogue import Json
from rackwright.domain.installs.node_network.devices import ResolvedNetwork
from rackwright.domain.installs.node_network.part import configure_network
from rackwright.domain.installs.node_network.resolve import resolve_network


def resolved(wanted: Json) -> ResolvedNetwork:
    network, problems = resolve_network(request(wanted))
    assert problems == ()
    assert network is not None
    return network


@pytest.mark.parametrize("wanted", [None, "", {}])
def test_without_a_document_the_image_is_left_as_it_is(wanted: Json) -> None:
    assert configure_network(request(wanted)).files == ()
    assert configure_network(request(wanted)).problems == ()


def test_addresses_are_those_of_the_node_on_the_network_and_links_are_found() -> None:
    devices = {device.name: device for device in resolved(BOND).devices}
    assert [str(address) for address in devices["bond0.77"].addresses] == ["10.77.0.7/24", "fd77::7/64"]
    assert [devices[name].mac for name in ("left", "right", "bond0")] == [
        "52:54:00:00:00:00",
        "52:54:00:00:00:01",
        "52:54:00:00:00:00",
    ]


def test_a_link_is_found_by_its_switch_port_and_a_bridge_has_the_mac_of_its_first_member() -> None:
    devices = {device.name: device for device in resolved(BRIDGE).devices}
    assert devices["up2"].mac == devices["br0"].mac == "52:54:00:00:00:02"
    assert devices["bond1"].mac == "52:54:00:00:00:01"  # its primary's
    assert [str(address) for address in devices["br0"].addresses] == ["10.9.0.7/24", "192.0.2.9/28"]


E4 = "ethernets: {eth0: {dhcp4: true}, eth1: {}, eth2: {}}\n"
REFUSED: list[tuple[str, int | None, str]] = [
    (
        "ethernets:\n  eth9: {dhcp4: true}\n",
        2,
        "eth9: the machine has no link eth9; its links: eth0 (52:54:00:00:00:00), eth1",
    ),
    (
        "ethernets:\n  a:\n    match: {lldp: {switch: leaf-2, port: Ethernet7}}\n",
        2,
        "no link whose neighbour is port Ethernet7 of leaf-2",
    ),
    ("ethernets:\n  a: {match: {name: eth0}}\n  eth0: {dhcp4: true}\n", 3, "eth0 and a are the same link"),
    ("ethernets:\n  a: {match: {name: eth0, macaddress: '52:54:00:00:00:00'}}\n", 2, "match is by one of"),
    ("ethernets:\n  a: {match: {lldp: {switch: leaf-1}}}\n", 2, "needs the switch and its port"),
    (
        E4 + "bonds:\n  bond0: {interfaces: [eth1, eth7]}\n",
        3,
        "eth7 is not declared; the document has eth0, eth1, eth2",
    ),
    (E4 + "bonds:\n  bond0: {}\n", 3, "a bond needs interfaces"),
    (E4 + "bonds:\n  b0: {interfaces: [eth1]}\n  b1: {interfaces: [eth1]}\n", 4, "eth1 is used twice: in b0 and in b1"),
    (E4 + "bonds:\n  b0: {interfaces: [eth0]}\n", 3, "eth0 is in b0, so its addresses and routes belong to b0"),
    (
        E4 + "bonds:\n  b0: {interfaces: [eth1], parameters: {primary: eth2}}\n",
        3,
        "its primary eth2 is none of its interfaces",
    ),
    (E4 + "bonds:\n  b0: {interfaces: [eth1], parameters: {mode: best}}\n", 3, "'best' is none of balance-rr"),
    (E4 + "bridges:\n  x: {interfaces: [y]}\n  y: {interfaces: [x]}\n", 3, "x stands on itself"),
    (E4 + "bridges:\n  x: {interfaces: [v]}\nvlans:\n  v: {id: 5, link: x}\n", 3, "x stands on itself"),
    (E4 + "bonds:\n  b0: {interfaces: [v]}\nvlans:\n  v: {id: 5, link: eth1}\n", 3, "a bond is made of ethernets"),
    (E4 + "bridges:\n  eth3: {}\n", 3, "eth3 is the name of link eth3 (52:54:00:00:00:03) already"),
    (E4 + "vlans:\n  v: {link: eth1}\n", 3, "a VLAN needs its id"),
    (E4 + "vlans:\n  v: {id: 4095, link: eth1}\n", 3, "is no number from 1 to 4094"),
    (
        E4 + "vlans:\n  v: {id: 78, link: eth1, addresses: [network: storage]}\n",
        3,
        "has VLAN 78, but network storage is VLAN 77",
    ),
    (E4 + "vlans:\n  v: {id: 7, link: eth1}\n  w: {id: 7, link: eth1}\n", 4, "VLAN 7 on eth1 is there already as v"),
    (E4 + "vlans:\n  v: {id: 7, link: eth1, mtu: 9000}\n", 3, "its MTU 9000 is above 1500, that of eth1 below it"),
    (
        "ethernets:\n  eth0: {mtu: 1500}\nbonds:\n  b0: {interfaces: [eth0], mtu: 9000, dhcp4: true}\n",
        4,
        "MTU 9000 is above 1500",
    ),
    (
        "ethernets:\n  eth0:\n    dhcp4: true\n    addresses: [network: empty]\n",
        4,
        "bind role network-empty to it first",
    ),
    (
        "ethernets:\n  eth0:\n    addresses: [network: none]\n",
        3,
        "there is no network none; there are admin, storage, empty",
    ),
    ("ethernets:\n  eth0: {addresses: [{network: admin, family: 6}]}\n", 2, "has no IPv6 address on network admin"),
    ("ethernets:\n  eth0: {addresses: [{network: admin, family: 5}]}\n", 2, "5 is neither 4 nor 6"),
    ("ethernets:\n  eth0: {addresses: [10.9.0.7]}\n", 2, "is no address of a host with its prefix"),
    (
        "ethernets:\n  eth0: {addresses: [10.9.0.7/16]}\n",
        2,
        "10.9.0.7/16 is of network admin, whose subnet is 10.9.0.0/24",
    ),
    ("ethernets:\n  eth0: {addresses: [10.9.0.8/24]}\n", 2, "10.9.0.8 of network admin is not allocated to n1"),
    (
        "ethernets:\n  eth0: {addresses: [10.9.0.7/24]}\n  eth1: {addresses: [10.9.0.7/24]}\n",
        3,
        "10.9.0.7 is there twice, first on eth0",
    ),
    ("ethernets:\n  eth0: {gateway4: 10.9.0.1}\n", 2, "write routes: [{to: default, via: ADDRESS}]"),
    ("ethernets:\n  eth0:\n    routes: [{to: default}]\n", 3, "one to default also via"),
    ("ethernets:\n  eth0:\n    routes: [{to: 'fd00::/8', via: 10.9.0.1}]\n", 3, "are of two families"),
    (
        "ethernets:\n  eth0:\n    addresses: [network: admin]\n    routes: [{to: 10.1.0.0/16, via: 10.8.0.1}]\n",
        4,
        "the gateway 10.8.0.1 is on no subnet of its addresses",
    ),
    (
        "ethernets:\n  eth0:\n    addresses: [network: admin]\n    routes: [{to: default, via: 10.9.0.7}]\n",
        4,
        "the gateway 10.9.0.7 is the node itself",
    ),
    (
        "ethernets:\n  eth0:\n    dhcp4: true\n    routes:\n    - {to: default, via: 10.9.0.1}\n"
        "  eth1:\n    dhcp4: true\n    routes:\n    - {to: default, via: 10.9.0.2, table: 254}\n",
        9,
        "a route to 0.0.0.0/0 is there already, on eth0",
    ),
    (
        "ethernets:\n  eth0:\n    dhcp4: true\n    routes:\n    - {to: 10.1.0.0/16, via: 10.9.0.1, metric: 5}\n"
        "    - {to: 10.1.0.0/16, via: 10.9.0.2, metric: 5}\n",
        6,
        "a route to 10.1.0.0/16 is there already, on eth0",
    ),
    ("ethernets:\n  eth0: {addresses: [192.0.2.16/28]}\n", 2, "is the address of the subnet 192.0.2.16/28"),
    ("ethernets:\n  eth0: {addresses: [192.0.2.31/28]}\n", 2, "is the address of the subnet 192.0.2.16/28"),
    ("ethernets:\n  eth0: {dhcp4: 'yes'}\n", 2, "is neither true nor false"),
    ("ethernets:\n  eth0: {dhcp4: true, link-local: [ipv4]}\n", 2, "'link-local' is not known in eth0"),
    ("ethernets:\n  averylongdevicename: {}\n", 2, "at most 15 characters"),
    ("ethernets:\n  eth0: {match: {name: 'eth0; reboot'}}\n", 2, "is no name of a device"),
    ("ethernets:\n  eth0: {set-name: lan}\n  eth1: {set-name: lan}\n", 2, "set-name lan is another device's"),
    ("version: 2\nwifis: {w: {}}\n", 2, "'wifis': Rackwright configures no wireless links"),
    ("version: 2\ntunnels: {}\n", 2, "configures no tunnels"),
    ("version: 2\nopenvswitch: {}\n", 2, "use bridges"),
    ("version: 1\n", 1, "version is 2"),
    ("renderer: NetworkManager\n", 1, "renderer is networkd"),
    ("network: {version: 2}\nother: 1\n", 2, "'other' is not known beside network"),
    ("ethernets: [eth0]\n", 1, "ethernets is a mapping"),
    ("ethernets: {eth0: {}\n", 2, "This is no valid YAML"),
    ("ethernets: {eth0: {}, eth0: {}}\n", 1, "is here twice"),
    ("ethernets: {x: {}}\nbridges:\n  x: {}\n", 3, "x is declared twice; it is among the ethernets already"),
    ("ethernets: {eth0: {}, eth1: {}, eth2: {}, eth3: {}}\n", None, "the server could not reach n1 any more"),
]


@pytest.mark.parametrize(("wanted", "line", "reason"), REFUSED, ids=[reason[:40] for _, _, reason in REFUSED])
def test_what_cannot_be_is_refused_with_its_line(wanted: str, line: int | None, reason: str) -> None:
    part = configure_network(request(wanted))
    assert part.files == ()
    assert any(problem.line == line and reason in problem.reason for problem in part.problems), part.problems


@pytest.mark.parametrize(
    "route",
    [
        "{to: default, via: 10.9.0.1}",
        "{to: default, via: 192.0.2.1, on-link: true}",
        "{to: 10.1.0.0/16}",
        "{to: default, via: 'fe80::1'}",
        "{to: 10.1.0.0/16, via: 10.9.0.1, metric: 5}, {to: 10.1.0.0/16, via: 10.9.0.2, metric: 6}",
        "{to: default, via: 10.9.0.1}, {to: default, via: 10.9.0.1, table: 7}",
    ],
)
def test_a_route_that_leads_somewhere_is_taken(route: str) -> None:
    document = f"ethernets:\n  eth0:\n    addresses: [network: admin, 192.0.2.30/31]\n    routes: [{route}]\n"
    assert configure_network(request(document)).problems == ()


def test_without_links_a_document_says_that_the_machine_was_not_discovered() -> None:
    _, [problem] = resolve_network(request({"ethernets": {"eth0": {"dhcp4": True}}}, {}))
    assert "the machine was not discovered yet" in problem.reason
    assert problem.line is None


NAMES = st.sampled_from(["eth0", "eth1", "b0", "br0", "v7", "x\ny", "Name=*"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | NAMES | st.just("10.9.0.7/24")
KEYS = st.sampled_from(
    [
        *("match", "name", "macaddress", "lldp", "switch", "port", "interfaces", "parameters", "mode", "id", "link"),
        *("addresses", "network", "routes", "to", "via", "mtu", "dhcp4", "nameservers", "search", "set-name"),
        *("ethernets", "bonds", "vlans", "bridges", "version", "eth0", "eth1", "b0", "br0", "v7"),
    ]
)
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))


@given(st.dictionaries(KEYS, DOCUMENTS, max_size=6))
def test_whatever_is_written_is_refused_or_gives_files_of_harmless_lines(document: dict[str, Json]) -> None:
    part = configure_network(request(document))
    for file in part.files:
        assert file.path.startswith(("/etc/systemd/network/05-rackwright-", "/etc/resolv.conf"))
        assert ".." not in file.path.removeprefix("/etc/systemd/network/").split("/")
        assert all(line == "" or line[0] == "[" or "=" in line or " " in line for line in file.content.split("\n"))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    configure_network(request(text))


@given(DOCUMENTS)
def test_whatever_a_machine_reports_is_read(reported: Json) -> None:
    resolve_network(request("ethernets: {eth0: {dhcp4: true}}", {"links": reported, "lldp": reported}))
