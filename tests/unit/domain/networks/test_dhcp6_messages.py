"""Messages of DHCPv6 clients on their way to the server and back, and what strangers send instead."""

import contextlib
import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.networks.dhcp6_messages import (
    MOST_IDENTITIES,
    MOST_OPTIONS,
    RELAY_REPLY,
    BadMessage,
    duid_of_mac,
    mac_of_link_local,
    relay_to_machine,
    relay_to_server,
)

MAC = "52:54:00:77:00:01"
MACHINE, PRIVATE, SERVER = IPv6Address("fe80::5054:ff:fe77:1"), IPv6Address("fe80::1234:5678"), IPv6Address("fd77::1")


def option(code: int, value: bytes) -> bytes:
    return struct.pack("!HH", code, len(value)) + value


def solicit(*options: bytes) -> bytes:
    return b"\1xid" + b"".join(options)


def wants(iaid: bytes) -> bytes:
    return option(3, iaid + bytes(8))


def answered(packet: bytes) -> bytes:
    """What a server sends that answers with just what it was asked: the message in a packet is its last option."""
    at = packet.rindex(b"\1xid" + option(1, duid_of_mac(MAC)))
    return bytes([RELAY_REPLY]) + packet[1:at] + b"\2" + packet[at + 1 :]


duids = st.binary(min_size=3, max_size=130)
iaids = st.lists(st.binary(min_size=4, max_size=4), max_size=MOST_IDENTITIES)


@given(duids, iaids)
def test_a_machine_is_answered_by_the_words_it_used(duid: bytes, iaids: list[bytes]) -> None:
    message = solicit(option(1, duid), option(8, b"\0\0"), *map(wants, iaids))
    packet = relay_to_server(message, MACHINE, "eth0", SERVER)
    assert option(1, duid_of_mac(MAC)) in packet
    answer = relay_to_machine(answered(packet))
    assert (answer.interface, answer.machine) == ("eth0", MACHINE)
    assert answer.message == b"\2" + message[1:]


def test_two_programs_of_one_machine_are_one_client_to_the_server() -> None:
    names = [b"\0\4" + bytes(16), b"\0\2" + b"x" * 12]
    packets = [relay_to_server(solicit(option(1, duid), wants(duid[-4:])), MACHINE, "eth0", SERVER) for duid in names]
    relayed = [packet[packet.index(b"\1xid") :] for packet in packets]
    assert relayed[0] == relayed[1]


def test_a_machine_with_another_kind_of_address_is_known_by_the_mac_in_its_name() -> None:
    for duid in (duid_of_mac(MAC), b"\0\1\0\1time" + bytes.fromhex(MAC.replace(":", ""))):
        packet = relay_to_server(solicit(option(1, duid)), PRIVATE, "eth0", SERVER)
        assert solicit(option(1, duid_of_mac(MAC))) in packet


def test_a_machine_that_shows_no_mac_keeps_its_own_name() -> None:
    duid = b"\0\4" + b"u" * 16
    assert solicit(option(1, duid)) in relay_to_server(solicit(option(1, duid)), PRIVATE, "eth0", SERVER)


def test_the_mac_of_an_address_is_only_taken_from_one_that_was_made_of_it() -> None:
    assert mac_of_link_local(MACHINE) == bytes.fromhex(MAC.replace(":", ""))
    assert mac_of_link_local(PRIVATE) is None
    assert mac_of_link_local(IPv6Address("fd77::5054:ff:fe77:1")) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1xi",
        b"\2xid",  # what servers say
        b"\x0c\0" + bytes(32),  # of a relay, which could name any machine
        b"\1xid\0\1\0\xff",
        b"\1xid\0",
        solicit(option(1, b"ab")),
        solicit(option(1, b"a" * 131)),
        solicit(option(1, b"abc"), option(1, b"abd")),
        solicit(option(3, b"short")),
        solicit(*[wants(b"aaaa")] * (MOST_IDENTITIES + 1)),
        solicit(*[option(8, b"\0\0")] * (MOST_OPTIONS + 1)),
        solicit(option(99, bytes(5000))),
    ],
)
def test_what_no_client_sends_is_dropped(message: bytes) -> None:
    with pytest.raises(BadMessage):
        relay_to_server(message, MACHINE, "eth0", SERVER)


@pytest.mark.parametrize("source", ["fd77::5", "::ffff:10.77.0.5", "2001:db8::1", "::1"])
def test_what_comes_from_beyond_the_link_is_dropped(source: str) -> None:
    with pytest.raises(BadMessage):
        relay_to_server(solicit(option(1, b"abc")), IPv6Address(source), "eth0", SERVER)


@given(st.binary(max_size=200))
def test_noise_is_dropped_or_handed_on_and_nothing_else(noise: bytes) -> None:
    for packet in (noise, b"\1" + noise, bytes([RELAY_REPLY]) + noise):
        with contextlib.suppress(BadMessage):
            relay_to_server(packet, MACHINE, "eth0", SERVER)
        with contextlib.suppress(BadMessage):
            relay_to_machine(packet)
