"""The state that DHCPv6 servers serve, rendered as Kea's configuration and parsed from it."""

import json
from dataclasses import replace
from ipaddress import IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.errors import Invalid
from rackwright.domain.networks.dhcp6 import (
    Dhcp6State,
    Dhcp6Subnet,
    Kea6Host,
    parse_kea6_config,
    render_kea6_config,
    sorted_state6,
)
from rackwright.domain.networks.dhcp_hosts import DhcpHost, as_list, as_mapping

PLACE = Kea6Host("/run/kea", "/leases", "020000000001", (IPv6Address("fd77::1"),))
SUBNET = Dhcp6Subnet(1, "admin", IPv6Network("fd77::/64"), ((IPv6Address("fd77::1:0"), IPv6Address("fd77::1:fffe")),))
HOST = DhcpHost("n1.rack.example", "local", ("52:54:00:00:00:01",), (IPv6Address("fd77::20"),))

macs = st.integers(0, 2**24 - 1).map(lambda n: "52:54:00:" + n.to_bytes(3, "big").hex(":"))
hosts = st.lists(
    st.tuples(
        st.lists(macs, min_size=1, max_size=3, unique=True), st.lists(st.integers(2, 0xFFFF), max_size=2, unique=True)
    ),
    max_size=5,
)


@given(hosts)
def test_what_is_rendered_is_read_back_as_it_was(hosts: list[tuple[list[str], list[int]]]) -> None:
    state = sorted_state6(
        Dhcp6State(
            3,
            (SUBNET,),
            tuple(
                DhcpHost(f"n{n}.rack.example", "local", tuple(macs), tuple(SUBNET.subnet[a] for a in host_parts))
                for n, (macs, host_parts) in enumerate(hosts)
            ),
        )
    )
    assert parse_kea6_config(render_kea6_config(state, PLACE)) == state


@pytest.mark.parametrize(
    ("boot_addresses", "url"),
    [(None, "http://[fd77::1]:"), (("fd77::2",), "http://[fd77::2]:"), ((), ""), (("fd78::1",), "")],
)
def test_machines_are_sent_only_to_an_address_that_has_what_they_boot(
    boot_addresses: tuple[str, ...] | None, url: str
) -> None:
    own = (IPv6Address("fd77::1"), IPv6Address("fd77::2"))
    offered = None if boot_addresses is None else tuple(map(IPv6Address, boot_addresses))
    config = json.dumps(
        render_kea6_config(Dhcp6State(1, (SUBNET,)), replace(PLACE, addresses=own, boot_addresses=offered))
    )
    if url:
        assert url.encode().hex().upper() in config
        assert "(relay6[0].linkaddr == fd77::1 or relay6[0].linkaddr == fd77::2)" in config
    else:
        assert b"http://".hex().upper() not in config
        assert b"tftp://".hex().upper() not in config


def test_kea_writes_its_lines_of_each_packet_only_where_they_are_bounded() -> None:
    """A stranger decides how many these are. What is written to standard output goes into a bounded file."""
    config = as_mapping(render_kea6_config(Dhcp6State(), PLACE)["Dhcp6"])
    outputs = [as_mapping(logger)["output_options"] for logger in as_list(config["loggers"])]
    assert outputs == [[{"output": "stdout", "flush": True}]]


def test_anything_that_differs_in_what_is_served_is_seen() -> None:
    state = Dhcp6State(3, (SUBNET,), (HOST,))
    for other in (
        replace(state, generation=4),
        replace(state, hosts=()),
        replace(state, hosts=(replace(HOST, bootenv="sledgehammer"),)),
        replace(state, hosts=(replace(HOST, addresses=()),)),
        replace(state, subnets=(replace(SUBNET, pools=()),)),
    ):
        assert parse_kea6_config(render_kea6_config(other, PLACE)) != state


def test_a_pool_that_kea_writes_as_a_network_is_read() -> None:
    config = {"Dhcp6": {"subnet6": [{"id": 1, "subnet": "fd77::/64", "pools": [{"pool": "fd77::100/120"}]}]}}
    [subnet] = parse_kea6_config(config).subnets
    assert subnet.pools == ((IPv6Address("fd77::100"), IPv6Address("fd77::1ff")),)


@pytest.mark.parametrize("bad", ["n1.example\n", 'n1".example', "n1.example;", "${n1}.example"])
def test_no_name_is_rendered_that_could_mean_something_else(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea6_config(Dhcp6State(1, (SUBNET,), (replace(HOST, node=bad),)), PLACE)


@pytest.mark.parametrize("bad", ["52:54:00:00:00:01\n", "52:54:00:00:00", "'; reboot", "00:03:00:01:52:54:00:00:00:01"])
def test_no_mac_is_rendered_that_is_none(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea6_config(Dhcp6State(1, (SUBNET,), (replace(HOST, macs=(bad,)),)), PLACE)


@pytest.mark.parametrize("bad", ["local\n", "a b", "$(x)", "", "../x"])
def test_no_bootenv_is_rendered_that_is_none(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea6_config(Dhcp6State(1, (SUBNET,), (replace(HOST, bootenv=bad),)), PLACE)
