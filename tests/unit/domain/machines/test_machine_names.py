import pytest

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.machines.machine_names import check_pattern, machine_names
from rackwright.domain.names import check_node_name

MAC, UUID = "52:54:00:00:00:0A", "00000000-0000-0000-0000-00000000000a"
PLAIN = "d52540000000a.discovered.internal"
FOUND: JsonObject = {"serial": "SN 12/34", "lldp": {"eth1": {"name": "Rack-7.lan", "port": "ge-0/0/3"}}}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{serial}.rack.example", "sn-12-34.rack.example"),
        ("m-{mac}.rack.example", "m-52540000000a.rack.example"),
        ("{uuid}.rack.example", "00000000-0000-0000-0000-00000000.rack.example"),
        ("{rack}-{port}.dc1.example", "rack-7-lan-ge-0-0-3.dc1.example"),
    ],
)
def test_a_machine_is_named_by_the_pattern(pattern: str, name: str) -> None:
    names = machine_names(check_pattern(pattern), MAC, UUID, FOUND)
    assert names[0] == name
    assert names[1].startswith(name.partition(".")[0] + "-52540000000a."), "where that is taken"
    assert names[-1] == PLAIN


@pytest.mark.parametrize(
    "inventory",
    [{}, {"serial": None}, {"serial": "///"}, {"serial": ["a"]}, {"serial": "\x00"}, {"serial": "ß"}],
)
def test_one_that_does_not_say_what_is_asked_is_named_by_its_mac(inventory: JsonObject) -> None:
    assert machine_names("{serial}.rack.example", MAC, None, inventory) == [PLAIN]


@pytest.mark.parametrize(
    "serial", ["a" * 5000, "-.-a.b..c-", "www\n.evil", "*", "a.services.internal", "10.0.0.1", "../x"]
)
def test_whatever_a_machine_says_becomes_one_label(serial: str) -> None:
    for name in machine_names("{serial}.rack.example", MAC, None, {"serial": serial}):
        assert check_node_name(name) == name
        assert name == PLAIN or name.count(".") == 2


WRONG = """
n1.rack.example {serial} {hostname}.x.example
{mac!r}.x.example {mac:>9}.x.example {mac.x}.y.z {0}.x.example {}.x.example
{mac.x.example {mac}_.x.example {mac}.services.internal
"""


@pytest.mark.parametrize("pattern", ["", *WRONG.split()])
def test_a_pattern_that_makes_no_names_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid):
        check_pattern(pattern)
