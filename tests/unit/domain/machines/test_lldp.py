"""The reader of LLDP frames: what it takes from a frame, and that it takes nothing else."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid
from rackwright.domain.machines.lldp import (
    FRAME_LIMIT,
    MOST_LINKS,
    PORT_VLAN,
    Neighbour,
    Tlv,
    read_frame,
    read_neighbours,
)
from rackwright.lab.lldp import (
    frame,
    in_base64,
    lifetime,
    mac_chassis,
    named_port,
    tlv,
)


def management(address: str) -> bytes:
    packed = ip_address(address).packed
    family = 1 if len(packed) == 4 else 2
    return tlv(Tlv.MANAGEMENT, bytes([1 + len(packed), family]) + packed + b"\x02\0\0\0\x07" + b"\0")


def port_vlan(vlan: int) -> bytes:
    return tlv(Tlv.ORGANISATION, PORT_VLAN + vlan.to_bytes(2))


SWITCH = "00:1c:73:0a:0b:0c"
CHASSIS, PORT = mac_chassis(SWITCH), named_port("Ethernet7")

PLAIN = Neighbour(SWITCH, "Ethernet7")
SPOKEN = frame(
    CHASSIS,
    PORT,
    tlv(Tlv.PORT_DESCRIPTION, b"to the third rack"),
    tlv(Tlv.NAME, b"leaf-3"),
    tlv(6, b"Switch OS 4.31"),
    tlv(7, b"\x00\x14\x00\x14"),
    management("10.0.0.3"),
    port_vlan(110),
)
"""The frame of a common switch, with parts that are not used."""
HEARD = Neighbour(SWITCH, "Ethernet7", "leaf-3", "to the third rack", "10.0.0.3", 110)
WORDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


def test_a_frame_of_a_switch_tells_which_switch_and_which_port() -> None:
    neighbour = read_frame(SPOKEN)
    assert neighbour == HEARD
    assert neighbour.as_json() == {
        "chassis": SWITCH,
        "port": "Ethernet7",
        "name": "leaf-3",
        "port_description": "to the third rack",
        "management": "10.0.0.3",
        "vlan": 110,
    }


def test_what_a_neighbour_does_not_say_is_left_out() -> None:
    neighbour = read_frame(frame(CHASSIS, PORT))
    assert neighbour == PLAIN
    assert neighbour.as_json() == {"chassis": SWITCH, "port": "Ethernet7"}


@given(WORDS, WORDS, WORDS, WORDS, st.ip_addresses(), st.integers(1, 4094), st.integers(1, 65535))
def test_what_was_put_into_a_frame_comes_out_of_it(
    chassis: str, port: str, name: str, description: str, address: object, vlan: int, seconds: int
) -> None:
    encoded = frame(
        tlv(Tlv.CHASSIS, b"\x07" + chassis.encode()),
        named_port(port),
        tlv(Tlv.NAME, name.encode()),
        port_vlan(vlan),
        management(str(address)),
        tlv(Tlv.PORT_DESCRIPTION, description.encode()),
        seconds=seconds,
    )
    told = "" if str(address) in ("0.0.0.0", "::") else str(address)
    assert read_frame(encoded) == Neighbour(chassis, port, name, description, told, vlan)


def _is_short_and_printable(neighbour: Neighbour) -> bool:
    texts = (neighbour.chassis, neighbour.port, neighbour.name, neighbour.port_description, neighbour.management)
    return all(len(text) <= 512 and all(" " <= letter <= "~" for letter in text) for text in texts)


@given(st.binary(max_size=FRAME_LIMIT))
def test_garbage_is_read_without_harm(garbage: bytes) -> None:
    neighbour = read_frame(garbage)
    assert neighbour is None or _is_short_and_printable(neighbour)


@given(st.lists(st.tuples(st.integers(0, 127), st.binary(max_size=300)), max_size=8))
def test_whatever_the_parts_say_what_is_taken_is_short_and_printable(parts: list[tuple[int, bytes]]) -> None:
    neighbour = read_frame(CHASSIS + PORT + lifetime() + b"".join(tlv(*typed) for typed in parts))
    assert neighbour is None or _is_short_and_printable(neighbour)


@given(st.binary(min_size=1, max_size=255), st.integers(0, 255), st.binary(min_size=1, max_size=255))
def test_whatever_identifiers_are_what_is_taken_is_short_and_printable(one: bytes, kind: int, other: bytes) -> None:
    kinds = bytes([kind])
    neighbour = read_frame(frame(tlv(Tlv.CHASSIS, kinds + one), tlv(Tlv.PORT, kinds + other)))
    assert neighbour is None or _is_short_and_printable(neighbour)


@pytest.mark.parametrize("length", range(len(SPOKEN.rstrip(b"\0"))))
def test_a_frame_that_is_cut_off_within_a_part_says_nothing(length: int) -> None:
    ends = {sum(map(len, parts)) for parts in _beginnings(SPOKEN)}
    neighbour = read_frame(SPOKEN[:length])
    mandatory = len(CHASSIS + PORT + lifetime())
    assert (neighbour is not None) == (length in ends and length >= mandatory)


def _beginnings(remaining: bytes) -> list[list[bytes]]:
    """Return the parts of a frame: the first, the first two, and so on."""
    parts: list[bytes] = []
    beginnings = []
    while remaining:
        size = 2 + (int.from_bytes(remaining[:2]) & 0x1FF)
        parts.append(remaining[:size])
        remaining = remaining[size:]
        beginnings.append([*parts])
    return beginnings


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        PORT + CHASSIS + lifetime(),
        CHASSIS + lifetime() + PORT,
        CHASSIS + PORT,
        CHASSIS + PORT + lifetime() + mac_chassis("00:00:00:00:00:01"),
        frame(tlv(Tlv.CHASSIS, b"\x04\x00\x1c\x73"), PORT),
        frame(tlv(Tlv.CHASSIS, b""), PORT),
        frame(CHASSIS, tlv(Tlv.PORT, b"\x05")),
        frame(CHASSIS, tlv(Tlv.PORT, b"\x05" + b"x" * 256)),
        CHASSIS + PORT + tlv(Tlv.LIFETIME, b"\x78"),
    ],
    ids=[
        *("nothing", "port first", "lifetime second", "no lifetime", "two chassis", "short MAC", "empty chassis"),
        *("empty port", "over-long port", "short lifetime"),
    ],
)
def test_a_frame_against_the_standard_says_nothing(sent: bytes) -> None:
    assert read_frame(sent) is None


def test_a_neighbour_that_says_it_goes_away_is_none() -> None:
    assert read_frame(frame(CHASSIS, PORT, seconds=0)) is None


@pytest.mark.parametrize(
    "optional",
    [
        tlv(Tlv.NAME, b"x" * 256),
        tlv(Tlv.MANAGEMENT, b""),
        tlv(Tlv.MANAGEMENT, b"\x05\x01\x0a\0\0\x03"),
        tlv(Tlv.MANAGEMENT, b"\x07\x06" + bytes(6) + b"\x02\0\0\0\x07\0"),
        tlv(Tlv.MANAGEMENT, b"\x05\x01\x0a\0\0\x03\x02\0\0\0\x07\x09"),
        management("0.0.0.0"),
        port_vlan(0),
        port_vlan(4095),
        tlv(Tlv.ORGANISATION, b"\x00\x80\xc2\x01\x01"),
        tlv(Tlv.ORGANISATION, b"\x00\x12\x0f\x01\x00\x6e"),
        tlv(99, b"of the future"),
    ],
)
def test_an_optional_part_that_does_not_fit_is_passed_over(optional: bytes) -> None:
    assert read_frame(frame(CHASSIS, PORT, optional)) == PLAIN


def test_of_two_parts_alike_the_first_counts() -> None:
    assert read_frame(frame(CHASSIS, PORT, tlv(Tlv.NAME, b"leaf-3"), tlv(Tlv.NAME, b"leaf-4"))) == Neighbour(
        SWITCH, "Ethernet7", "leaf-3"
    )


def test_control_characters_do_not_pass() -> None:
    neighbour = read_frame(
        frame(CHASSIS, PORT, tlv(Tlv.NAME, b"leaf\x1b[2J-3\r\n\0"), tlv(Tlv.PORT_DESCRIPTION, "\u202eü".encode()))
    )
    assert neighbour == Neighbour(SWITCH, "Ethernet7", "leaf[2J-3")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x03\x00\x1c\x73\x00\x00\x07", "00:1c:73:00:00:07"),
        (b"\x04\x01\x0a\x00\x00\x07", "10.0.0.7"),
        (b"\x07Gi1/0/7\0", "Gi1/0/7"),
        (b"\x06\x01\x02\xff", "0x0102ff"),
        (b"\x05   ", "0x202020"),
    ],
)
def test_a_port_is_shown_as_what_it_is(value: bytes, shown: str) -> None:
    assert read_frame(frame(CHASSIS, tlv(Tlv.PORT, value))) == Neighbour(SWITCH, shown)


def test_what_a_machine_heard_is_read_link_by_link_and_what_says_nothing_is_left_out() -> None:
    told: Json = {"eth0": in_base64(SPOKEN), "eth1": in_base64(b"garbage"), "eth2": ""}
    assert read_neighbours(told) == {"eth0": HEARD.as_json()}


@pytest.mark.parametrize(
    ("told", "pointer"),
    [
        ([], "/inventory/lldp"),
        ("frame", "/inventory/lldp"),
        ({"eth0": {"name": "leaf-3"}}, "/inventory/lldp/eth0"),
        ({"eth0": "no base64!"}, "/inventory/lldp/eth0"),
        ({"eth0": "gr\u00fcn"}, "/inventory/lldp/eth0"),
        ({"eth0": in_base64(b"x" * (FRAME_LIMIT + 1))}, "/inventory/lldp/eth0"),
        ({"eth0/../x": in_base64(frame(CHASSIS, PORT))}, "/inventory/lldp"),
        ({"": in_base64(frame(CHASSIS, PORT))}, "/inventory/lldp"),
        ({f"eth{number}": in_base64(frame(CHASSIS, PORT)) for number in range(MOST_LINKS + 1)}, "/inventory/lldp"),
    ],
)
def test_a_machine_that_tells_nonsense_is_told_so(told: Json, pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_neighbours(told)
    assert refused.value.pointer == pointer
