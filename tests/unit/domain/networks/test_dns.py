"""The zones that DNS serves for names and addresses of nodes: nothing unchecked gets in."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.errors import Invalid
from rackwright.domain.networks.dns import DnsHost, Record, RecordType, dns_state, forward_zones, reverse_zone


def test_every_address_is_found_both_ways() -> None:
    host = DnsHost("n1.rack.example", (ip_address("10.77.0.20"), ip_address("fd77::20")), (ip_address("10.78.0.5"),))
    subnets = [ip_network("10.77.0.0/24"), ip_network("fd77::/64"), ip_network("10.78.0.0/16")]
    state = dns_state(7, [host], subnets, ["rack.example"])
    assert state.zones["rack.example"] == {
        Record("n1.rack.example", RecordType.A, "10.77.0.20"),
        Record("n1.rack.example", RecordType.AAAA, "fd77::20"),
    }
    assert state.zones["0.77.10.in-addr.arpa"] == {Record("20.0.77.10.in-addr.arpa", RecordType.PTR, "n1.rack.example")}
    assert state.zones["78.10.in-addr.arpa"] == {Record("5.0.78.10.in-addr.arpa", RecordType.PTR, "n1.rack.example")}
    [six] = [zone for zone in state.zones if zone.endswith("ip6.arpa")]
    assert six == "0.0.0.0.0.0.0.0.0.0.0.0.7.7.d.f.ip6.arpa"
    assert len(state.zones[six]) == 1


def test_an_address_of_no_network_has_a_name_but_is_nobodys() -> None:
    state = dns_state(1, [DnsHost("n1.rack.example", (ip_address("192.0.2.5"),))], [], ["rack.example"])
    assert state.zones == {"rack.example": {Record("n1.rack.example", RecordType.A, "192.0.2.5")}}


def test_a_domain_below_another_is_part_of_it() -> None:
    assert forward_zones(["example", "rack.example", "other.test"]) == ["example", "other.test"]


def test_a_name_in_no_domain_is_not_served_and_makes_no_zone() -> None:
    """A node called evil.com would else have the server answer for all of com."""
    evil = DnsHost("evil.com", (ip_address("10.77.0.66"),))
    state = dns_state(1, [evil], [ip_network("10.77.0.0/24")], ["rack.example"])
    assert state.zones == {"rack.example": frozenset(), "0.77.10.in-addr.arpa": frozenset()}


@pytest.mark.parametrize(
    ("subnet", "zone"),
    [
        ("10.0.0.0/8", "10.in-addr.arpa"),
        ("10.1.0.0/12", None),
        ("172.16.0.0/12", "172.in-addr.arpa"),
        ("10.1.2.128/25", "2.1.10.in-addr.arpa"),
        ("10.1.2.0/23", "1.10.in-addr.arpa"),
        ("fd00::/16", "0.0.d.f.ip6.arpa"),
        ("fd00::/18", "0.0.d.f.ip6.arpa"),
    ],
)
def test_the_reverse_zone_is_that_of_the_whole_labels_of_the_prefix(subnet: str, zone: str | None) -> None:
    if zone is not None:
        assert reverse_zone(ip_network(subnet)) == zone


@given(st.integers(0, 2**32 - 1), st.integers(8, 30))
def test_every_address_of_a_subnet_is_below_its_reverse_zone(number: int, prefix: int) -> None:
    subnet = ip_network((number, prefix), strict=False)
    for address in (subnet[0], subnet[-1]):
        assert address.reverse_pointer.endswith(f".{reverse_zone(subnet)}")


@pytest.mark.parametrize(
    "name", ["n1.rack.example\n", 'n1".example', "n1;.example", "$(reboot).example", "n1 .example", "n'.example", "n1"]
)
def test_a_name_that_could_mean_something_else_is_never_in_a_zone(name: str) -> None:
    with pytest.raises(Invalid):
        dns_state(1, [DnsHost(name, (ip_address("10.0.0.1"),))], [], ["example", "rack.example"])
