"""The state that DHCP servers serve, rendered as Kea's configuration and parsed from it."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.errors import Invalid
from rackwright.domain.networks.dhcp import (
    DhcpState,
    DhcpSubnet,
    KeaHost,
    check_interface,
    parse_kea_config,
    render_kea_config,
    sorted_state,
)
from rackwright.domain.networks.dhcp_hosts import DhcpHost, as_list, as_mapping, pool_share

PLACE = KeaHost("/run/kea", "/leases", ("eth0",), (IPv4Address("10.0.0.1"),))
SUBNET = DhcpSubnet(
    1,
    "admin",
    IPv4Network("10.0.0.0/24"),
    ((IPv4Address("10.0.0.100"), IPv4Address("10.0.0.199")),),
    (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")),
)
HOST = DhcpHost("n1.rack.example", "local", ("52:54:00:00:00:01",), (IPv4Address("10.0.0.20"),))

macs = st.integers(0, 2**24).map(lambda n: "52:54:00:" + ":".join(f"{n:06x}"[i : i + 2] for i in (0, 2, 4)))
hosts = st.lists(
    st.tuples(
        st.lists(macs, min_size=1, max_size=3, unique=True), st.lists(st.integers(1, 99), max_size=2, unique=True)
    ),
    max_size=5,
)


@given(hosts)
def test_what_is_rendered_is_read_back_as_it_was(hosts: list[tuple[list[str], list[int]]]) -> None:
    state = sorted_state(
        DhcpState(
            3,
            (SUBNET,),
            tuple(
                DhcpHost(
                    f"n{n}.rack.example", "local", tuple(macs), tuple(IPv4Address(f"10.0.0.{a}") for a in last_bytes)
                )
                for n, (macs, last_bytes) in enumerate(hosts)
            ),
        )
    )
    assert parse_kea_config(render_kea_config(state, PLACE)) == state


def test_kea_writes_its_lines_of_each_packet_only_where_they_are_bounded() -> None:
    """A stranger decides how many these are. What is written to standard output goes into a bounded file."""
    config = as_mapping(render_kea_config(DhcpState(), PLACE)["Dhcp4"])
    outputs = [as_mapping(logger)["output_options"] for logger in as_list(config["loggers"])]
    assert outputs == [[{"output": "stdout", "flush": True}]]


def test_anything_that_differs_in_what_is_served_is_seen() -> None:
    state = DhcpState(3, (SUBNET,), (HOST,))
    for other in (
        replace(state, generation=4),
        replace(state, hosts=()),
        replace(state, hosts=(replace(HOST, bootenv="sledgehammer"),)),
        replace(state, hosts=(replace(HOST, addresses=()),)),
        replace(state, subnets=(replace(SUBNET, pools=()),)),
        replace(state, subnets=(replace(SUBNET, routers=()),)),
    ):
        assert parse_kea_config(render_kea_config(other, PLACE)) != state


@pytest.mark.parametrize("bad", ["n1.example\n", 'n1".example', "n1.example;", "${n1}.example"])
def test_no_name_is_rendered_that_could_mean_something_else(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea_config(DhcpState(1, (SUBNET,), (replace(HOST, node=bad),)), PLACE)


@pytest.mark.parametrize("bad", ["52:54:00:00:00:01\n", "52:54:00:00:00", "'; reboot"])
def test_no_mac_is_rendered_that_is_none(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea_config(DhcpState(1, (SUBNET,), (replace(HOST, macs=(bad,)),)), PLACE)


@pytest.mark.parametrize("bad", ["local\n", "a b", "$(x)", "", "../x"])
def test_no_bootenv_is_rendered_that_is_none(bad: str) -> None:
    with pytest.raises(Invalid):
        render_kea_config(DhcpState(1, (SUBNET,), (replace(HOST, bootenv=bad),)), PLACE)


@pytest.mark.parametrize("bad", ["", "eth0\n", "eth0/10.0.0.1", "a" * 16, "eth 0", "*"])
def test_no_interface_is_served_that_is_none(bad: str) -> None:
    with pytest.raises(Invalid):
        check_interface(bad)


@given(st.integers(1, 40), st.integers(1, 6))
def test_servers_share_a_pool_without_overlap_and_without_a_rest(size: int, of: int) -> None:
    first = IPv4Address("10.0.0.10")
    parts = [part for place in range(of) for part in pool_share([(first, first + (size - 1))], place, of)]
    covered = [number for low, high in parts for number in range(int(low), int(high) + 1)]
    assert covered == list(range(int(first), int(first) + size))


def test_each_kind_of_firmware_is_named_a_loader_of_its_own() -> None:
    rendered: Any = render_kea_config(DhcpState(3, (SUBNET,), (HOST,)), PLACE)
    classes = {entry["name"]: entry for entry in rendered["Dhcp4"]["client-classes"]}
    assert [(name, entry["boot-file-name"]) for name, entry in classes.items() if name != "ipxe"] == [
        ("bios", "undionly.kpxe"),
        ("uefi-amd64", "shimx64.efi"),
        ("uefi-arm64", "shimaa64.efi"),
        ("http-amd64-1", "http://10.0.0.1:80/files/sledgehammer/shimx64.efi"),
        ("http-arm64-1", "http://10.0.0.1:80/files/sledgehammer-arm64/shimaa64.efi"),
    ]
    assert "option[93].hex == 0x000b" in classes["uefi-arm64"]["test"]
    assert "option[93].hex == 0x0013" in classes["http-arm64-1"]["test"]
    [subnet] = rendered["Dhcp4"]["subnet4"]
    assert subnet["require-client-classes"] == ["http-amd64-1", "http-arm64-1"]
