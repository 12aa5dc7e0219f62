"""The lines of a node's links, with where the cable leads, whatever a machine reported."""

from typing import Any

import pytest

from rackwright.cli.output.cable_lines import with_links

LEAF = {"chassis": "00:1c:73:0a:0b:0c", "port": "Ethernet7", "name": "leaf-3"}


def _shown(**discovery: Any) -> dict[str, Any]:
    return with_links({"name": "n1", "discovery": discovery})


def test_a_link_says_where_its_cable_leads() -> None:
    link = {"name": "eth0", "mac": "52:54:00:00:00:01", "up": True, "speed": 1000}
    neighbour = {**LEAF, "port_description": "to the third rack", "vlan": 110, "management": "10.0.0.3"}
    assert _shown(serial="S1", links=[link], lldp={"eth0": neighbour}) == {
        "name": "n1",
        "discovery": {"serial": "S1"},
        "link eth0": "52:54:00:00:00:01, up, 1000 Mbit/s, connected to leaf-3 port Ethernet7"
        " (to the third rack, VLAN 110, managed at 10.0.0.3)",
    }


def test_a_switch_without_a_name_goes_by_its_chassis() -> None:
    neighbour = {"chassis": LEAF["chassis"], "port": "7"}
    assert _shown(lldp={"eth0": neighbour})["link eth0"] == "connected to 00:1c:73:0a:0b:0c port 7"


def test_a_link_that_heard_nothing_is_shown_without_a_cable() -> None:
    links = [{"name": "eth0", "mac": "52:54:00:00:00:01", "up": False, "speed": -1}]
    assert _shown(links=links, lldp={})["link eth0"] == "52:54:00:00:00:01, down"


@pytest.mark.parametrize(
    "discovery",
    [
        {},
        {"links": "x", "lldp": []},
        {"links": [None, 7, {}, {"name": 7}], "lldp": {"eth0": None, "eth1": {"chassis": 1, "port": {}}}},
    ],
)
def test_what_does_not_look_like_links_is_left_as_it_is(discovery: dict[str, Any]) -> None:
    assert _shown(**discovery) == {"name": "n1", "discovery": discovery}
