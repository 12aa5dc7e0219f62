"""The rules for networks, each shown by a network that breaks it, and the arithmetic of addresses."""

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.barclamp_fit import check_fit

from rackwright.domain.catalogue import Barclamp, Flag
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.networks import (
    Category,
    Network,
    Range,
    Router,
    Use,
    check_network,
    check_network_name,
    check_overlap,
    check_requested_address,
    networks_barclamp,
    parse_address,
    parse_subnet,
    same_host_part,
)


def span(name: str, first: str, last: str, use: Use = Use.HOST) -> Range:
    return Range(name, use, ip_address(first), ip_address(last))


GOOD = Network(
    "admin",
    Category.ADMIN,
    v4_subnet=IPv4Network("10.0.0.0/24"),
    v6_subnet=IPv6Network("fd00::/64"),
    ranges=(
        span("admin", "10.0.0.10", "10.0.0.19", Use.ADMIN),
        span("host", "10.0.0.20", "10.0.0.99"),
        span("dhcp", "10.0.0.100", "10.0.0.199", Use.DYNAMIC),
        span("host6", "fd00::10", "fd00::ffff"),
    ),
    routers=(Router(ip_address("10.0.0.1")), Router(ip_address("fd00::1"))),
)


def pointer_of(network: Network) -> str:
    with pytest.raises(Invalid) as caught:
        check_network(network)
    assert caught.value.status == 422
    return caught.value.pointer


def test_a_network_of_both_families_is_right() -> None:
    assert check_network(GOOD) is GOOD


@pytest.mark.parametrize(
    "name", ["", "Admin", "-a", "a-", "1a", "a b", "a\n", "a;b", "a'b", "$(a)", "a" * 41, "ä", "a_b", "a.b"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        check_network_name(name)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("10.0.0.1/24", 4),
        ("10.0.0.0", 4),
        ("10.0.0.0/31", 4),
        ("10.0.0.0/7", 4),
        ("224.0.0.0/24", 4),
        ("127.0.0.0/8", 4),
        ("169.254.0.0/16", 4),
        ("fd00::/64", 4),
        ("10.0.0.0/24\n", 4),
        ("10.0.0.0/255.255.255.0;", 4),
        ("fe80::/64", 6),
        ("ff00::/16", 6),
        ("fd00::1/64", 6),
        ("fd00::/127", 6),
        ("10.0.0.0/24", 6),
    ],
)
def test_what_is_no_subnet_for_machines_is_refused(text: str, family: int) -> None:
    with pytest.raises(Invalid) as caught:
        parse_subnet(text, family, "/there")
    assert caught.value.pointer == "/there"


@pytest.mark.parametrize("text", ["", "10.0.0", "10.0.0.1\n", "10.0.0.1 ", "010.0.0.1", "fe80::1%eth0", "n1.example"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_address(text)


@pytest.mark.parametrize(
    ("ranges", "pointer"),
    [
        ((span("a", "10.0.1.1", "10.0.1.2"),), "/ranges/0/first"),
        ((span("a", "10.0.0.250", "10.0.1.2"),), "/ranges/0/last"),
        ((span("a", "10.0.0.0", "10.0.0.2"),), "/ranges/0/first"),
        ((span("a", "10.0.0.250", "10.0.0.255"),), "/ranges/0/last"),
        ((span("a", "fd00::", "fd00::2"),), "/ranges/0/first"),
        ((span("a", "10.0.0.9", "10.0.0.8"),), "/ranges/0/last"),
        ((span("a", "10.0.0.9", "fd00::8"),), "/ranges/0/last"),
        ((span("a;", "10.0.0.8", "10.0.0.9"),), "/ranges/0/name"),
        ((span("a", "10.0.0.8", "10.0.0.9"), span("a", "10.0.0.18", "10.0.0.19")), "/ranges/1/name"),
        ((span("a", "10.0.0.8", "10.0.0.20"), span("b", "10.0.0.20", "10.0.0.30")), "/ranges/1/first"),
        ((span("a", "10.0.0.8", "10.0.0.9"), span("b", "10.0.0.2", "10.0.0.30")), "/ranges/1/first"),
    ],
)
def test_a_range_is_in_its_subnet_and_overlaps_no_other(ranges: tuple[Range, ...], pointer: str) -> None:
    assert pointer_of(replace(GOOD, ranges=ranges, routers=())) == pointer


@pytest.mark.parametrize("address", ["10.0.1.1", "10.0.0.0", "10.0.0.255", "10.0.0.50", "fd01::1", "fd00::10"])
def test_a_router_is_in_the_subnet_and_in_no_range(address: str) -> None:
    assert pointer_of(replace(GOOD, routers=(Router(ip_address(address)),))) == "/routers/0/address"


def test_a_router_is_there_once() -> None:
    assert pointer_of(replace(GOOD, routers=(GOOD.routers[0], GOOD.routers[0]))) == "/routers/1/address"


@pytest.mark.parametrize("vlan", [0, -1, 4095])
def test_a_vlan_is_from_1_to_4094(vlan: int) -> None:
    assert pointer_of(replace(GOOD, vlan=vlan)) == "/vlan"


def test_a_network_needs_a_subnet() -> None:
    assert pointer_of(Network("a")) == "/v4_subnet"


def test_networks_share_no_address() -> None:
    other = Network("other", v4_subnet=IPv4Network("10.0.0.128/25"))
    with pytest.raises(Invalid, match="'admin'") as caught:
        check_overlap(other, [GOOD])
    assert caught.value.pointer == "/v4_subnet"
    check_overlap(GOOD, [GOOD])
    check_overlap(replace(other, v4_subnet=IPv4Network("10.0.1.0/24")), [GOOD])


@pytest.mark.parametrize("address", ["10.0.1.5", "10.0.0.1", "10.0.0.150", "10.0.0.255"])
def test_nobody_may_wish_for_what_is_not_for_nodes(address: str) -> None:
    with pytest.raises(Invalid):
        check_requested_address(GOOD, ip_address(address))


def test_an_address_outside_of_all_ranges_may_be_wished_for() -> None:
    check_requested_address(GOOD, ip_address("10.0.0.5"))


def test_admin_nodes_share_where_no_range_is_for_them() -> None:
    assert [range.name for range in GOOD.ranges_for(4, admin=True)] == ["admin"]
    assert [range.name for range in GOOD.ranges_for(4, admin=False)] == ["host"]
    assert [range.name for range in GOOD.ranges_for(6, admin=True)] == ["host6"]


@given(st.integers(0, 255), st.sampled_from(["172.16.0.0/24", "172.16.4.0/22", "172.16.0.64/26", "172.16.0.0/30"]))
def test_the_host_part_is_kept_wherever_it_fits(part: int, subnet: str) -> None:
    target = ip_network(subnet)
    assert isinstance(target, IPv4Network)
    of = ip_network("10.0.0.0/24")
    address = same_host_part(Network("x", v4_subnet=target), of[part], of)
    if part < target.num_addresses:
        assert address is not None
        assert int(address) - int(target.network_address) == part
    else:
        assert address is None


def test_the_host_part_says_nothing_where_there_is_no_such_family() -> None:
    only6 = Network("x", v6_subnet=IPv6Network("fd01::/64"))
    assert same_host_part(only6, ip_address("10.0.0.5"), ip_network("10.0.0.0/24")) is None


def test_each_network_is_a_milestone_and_the_admin_network_comes_first() -> None:
    storage = Network("storage", v4_subnet=IPv4Network("10.9.0.0/24"))
    barclamp = networks_barclamp([storage, GOOD])
    check_fit([Barclamp("network"), barclamp])
    admin, other = barclamp.roles
    assert (admin.name, other.name) == ("network-admin", "network-storage")
    assert other.requires == ("network-admin",)
    assert set(admin.attaches) == {"crowbar-admin-node", "crowbar-managed-node"}
    assert admin.flags == {Flag.IMPLICIT, Flag.MILESTONE}
    assert set(other.wants) == {"hint-storage-v4addr", "hint-storage-v6addr"}
