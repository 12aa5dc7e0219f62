"""DHCPv6 messages on their way between machines and the server: every machine gets one name, made of its MAC.

A DHCPv6 client names itself by a DUID and numbers what it asks for (IAID). Firmware, iPXE, the installer and the
installed system are four clients with four names, so to a server they are four machines: an address that is reserved
for one MAC is still leased to the firmware when iPXE asks for it, and iPXE gets another. Here the names are replaced on
the way to the server, and put back on the way to the machine. What was replaced travels in the Interface-Id option,
which a server returns as it is: nothing is remembered.

Anybody on the network can send such messages. Whatever is not well formed is dropped.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

RELAY_FORWARD, RELAY_REPLY = 12, 13
CLIENT_MESSAGES = frozenset({1, 3, 4, 5, 6, 8, 9, 11})
"""Solicit, Request, Confirm, Renew, Rebind, Release, Decline, Information-request."""
DECLINE = 9
SERVER_MESSAGES = frozenset({2, 7, 10})
"""Advertise, Reply, Reconfigure."""
OPTION_CLIENT, OPTION_ADDRESSES, OPTION_RELAYED, OPTION_INTERFACE = 1, 3, 9, 18
LONGEST_MESSAGE = 4096
LONGEST_DUID = 130
MOST_OPTIONS = 64
MOST_IDENTITIES = 8
"""Requests for addresses in one message."""
_DUID_TIME, _DUID_PLAIN, _ETHERNET = 1, 3, 1

Option = tuple[int, bytes]


class BadMessage(Exception):
    """A message is not well formed."""


@dataclass(frozen=True)
class Answer:
    """A message for a machine: the interface and the address to send it to."""

    interface: str
    machine: IPv6Address
    message: bytes


def duid_of_mac(mac: str) -> bytes:
    """Return the name that a machine has at the server, whatever it calls itself."""
    return struct.pack("!HH", _DUID_PLAIN, _ETHERNET) + bytes.fromhex(mac.replace(":", ""))


def mac_of_link_local(address: IPv6Address) -> bytes | None:
    """Return the MAC that a link-local address was made of; None if it was made in another way."""
    packed = address.packed
    if not address.is_link_local or packed[11:13] != b"\xff\xfe":
        return None
    return bytes([packed[8] ^ 2]) + packed[9:11] + packed[13:]


def _mac_of_duid(duid: bytes) -> bytes | None:
    if len(duid) < 4:
        return None
    kind, hardware = struct.unpack("!HH", duid[:4])
    if hardware != _ETHERNET:
        return None
    if kind == _DUID_TIME and len(duid) == 14:
        return duid[8:]
    return duid[4:] if kind == _DUID_PLAIN and len(duid) == 10 else None


def relay_to_server(message: bytes, machine: IPv6Address, interface: str, server: IPv6Address) -> bytes:
    """Return what the server is sent for a message that came from `machine`, on an interface where we are `server`.

    BadMessage if it is none that a client sends.
    """
    if len(message) > LONGEST_MESSAGE or len(message) < 4 or message[0] not in CLIENT_MESSAGES:
        raise BadMessage("it is no message of a client")
    if not machine.is_link_local:
        raise BadMessage("it does not come from this link")
    options = list(_read_options(message[4:]))
    duids = [value for code, value in options if code == OPTION_CLIENT]
    if len(duids) > 1 or any(not 3 <= len(duid) <= LONGEST_DUID for duid in duids):
        raise BadMessage("its name is none")
    duid = duids[0] if duids else b""
    mac = mac_of_link_local(machine) or _mac_of_duid(duid)
    numbers: list[bytes] = []
    renamed: list[Option] = []
    for code, value in options:
        if code == OPTION_CLIENT and mac is not None:
            renamed.append((code, struct.pack("!HH", _DUID_PLAIN, _ETHERNET) + mac))
        elif code == OPTION_ADDRESSES:
            if len(value) < 12:
                raise BadMessage("what it asks for is cut off")
            numbers.append(value[:4])
            renamed.append((code, struct.pack("!I", len(numbers)) + value[4:]))
        else:
            renamed.append((code, value))
    if len(numbers) > MOST_IDENTITIES:
        raise BadMessage("it asks for too much at once")
    own_words = bytes([len(interface)]) + interface.encode("ascii") + bytes([len(duid)]) + duid + b"".join(numbers)
    return (
        bytes([RELAY_FORWARD, 0])
        + server.packed
        + machine.packed
        + _write_options([(OPTION_INTERFACE, own_words), (OPTION_RELAYED, message[:4] + _write_options(renamed))])
    )


def relay_to_machine(packet: bytes) -> Answer:
    """Return what a machine is sent, from the packet of the server that carries it. BadMessage if it carries none."""
    if len(packet) < 34 or packet[0] != RELAY_REPLY:
        raise BadMessage("it is no answer to a relay")
    machine = IPv6Address(packet[18:34])
    outer = dict(_read_options(packet[34:]))
    message, own_words = outer.get(OPTION_RELAYED, b""), outer.get(OPTION_INTERFACE, b"")
    if len(message) < 4 or message[0] not in SERVER_MESSAGES or not machine.is_link_local:
        raise BadMessage("it is no message of a server")
    interface, duid, numbers = _read_own_words(own_words)
    restored: list[Option] = []
    for code, value in _read_options(message[4:]):
        if code == OPTION_CLIENT:
            restored.append((code, duid))
        elif code == OPTION_ADDRESSES:
            number = int.from_bytes(value[:4], "big")
            if not 1 <= number <= len(numbers):
                raise BadMessage("it answers what was not asked")
            restored.append((code, numbers[number - 1] + value[4:]))
        else:
            restored.append((code, value))
    return Answer(interface, machine, message[:4] + _write_options(restored))


def _read_own_words(own_words: bytes) -> tuple[str, bytes, list[bytes]]:
    """Return the interface, the DUID and the numbers that `relay_to_server` put into a packet."""
    try:
        name_end = 1 + own_words[0]
        duid_end = name_end + 1 + own_words[name_end]
        interface = own_words[1:name_end].decode("ascii")
    except (IndexError, UnicodeDecodeError):
        raise BadMessage("it is for no interface of ours") from None
    rest = own_words[duid_end:]
    return interface, own_words[name_end + 1 : duid_end], [rest[at : at + 4] for at in range(0, len(rest), 4)]


def _read_options(data: bytes) -> Iterator[Option]:
    at = count = 0
    while at < len(data):
        count += 1
        if at + 4 > len(data) or count > MOST_OPTIONS:
            raise BadMessage("its options are cut off, or too many")
        code, length = struct.unpack_from("!HH", data, at)
        at += 4
        if at + length > len(data):
            raise BadMessage("an option is longer than the message")
        yield code, data[at : at + length]
        at += length


def _write_options(options: Sequence[Option]) -> bytes:
    return b"".join(struct.pack("!HH", code, len(value)) + value for code, value in options)
