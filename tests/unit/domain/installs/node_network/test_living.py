"""The network of a node that runs: what its files are, and where the server may look for it afterwards."""

import pytest
from tests.unit.domain.installs.node_network.scene import BOND, BRIDGE, request

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.node_network.living import (
    USUAL_SECONDS,
    has_network_files,
    resolve_node_network,
    seconds_to_confirm,
)
from rackwright.domain.installs.node_network.networkd import render_networkd
from rackwright.domain.installs.node_network.resolve import resolve_network
from rackwright.domain.installs.resolve import resolve_install


def test_its_files_are_those_that_an_install_writes() -> None:
    network, _ = resolve_network(request(BOND))
    assert network is not None
    living, problems = resolve_node_network(request(BOND), was_configured=False)
    assert living is not None
    assert problems == ()
    assert living.files == render_networkd(network)


def test_the_server_looks_for_it_where_addresses_are_allocated_to_it_and_nowhere_else() -> None:
    document = "ethernets: {eth0: {dhcp4: true}, eth1: {addresses: [network: storage, 203.0.113.9/24]}}"
    living, problems = resolve_node_network(request(document), was_configured=True)
    assert problems == ()
    assert living is not None
    assert living.addresses == ("10.9.0.7", "10.77.0.7", "fd77::7"), (
        "the admin network's first; not what is just written"
    )


def test_an_address_that_it_will_not_have_is_not_tried() -> None:
    living, _ = resolve_node_network(request("ethernets: {eth0: {dhcp4: true}}"), was_configured=True)
    assert living is not None
    assert living.addresses == ("10.9.0.7",)


@pytest.mark.parametrize("wanted", [None, "", {}])
def test_no_network_is_wanted(wanted: Json) -> None:
    living, problems = resolve_node_network(request(wanted), was_configured=True)
    assert problems == ()
    assert living is not None
    assert (living.files, living.was_configured) == ((), True)


def test_a_network_that_the_machine_cannot_have() -> None:
    living, problems = resolve_node_network(request("ethernets: {eth9: {dhcp4: true}}"), was_configured=True)
    assert living is None
    assert "no link eth9" in problems[0].reason


@pytest.mark.parametrize("document", [BOND, BRIDGE])
def test_an_install_with_a_network_is_known_by_its_files(document: str) -> None:
    assert has_network_files(resolve_install(request(document)).config)
    assert not has_network_files(resolve_install(request(None)).config)


@pytest.mark.parametrize("frozen", [{}, {"files": None}, {"files": ["x", {"path": 5}, {}]}])
def test_what_other_versions_froze(frozen: JsonObject) -> None:
    assert not has_network_files(frozen)


@pytest.mark.parametrize("chosen", [None, "30", True, 0, -1, [30]])
def test_seconds_that_are_none(chosen: Json) -> None:
    assert seconds_to_confirm({"network_seconds": chosen}) == USUAL_SECONDS
    assert seconds_to_confirm({"network_seconds": 30}) == 30
    assert seconds_to_confirm({}) == USUAL_SECONDS
