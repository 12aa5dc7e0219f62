"""What the neighbour of a link, mostly a switch, says of itself by LLDP (IEEE 802.1AB): frames read, and nothing else.

A frame is a stranger's: it is read strictly, all that is taken from it is short and printable, and one that does not
fit says nothing at all, for a machine cannot help what its neighbour sends. A machine that passes on what is not even a
frame is wrong itself, and is told so.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import TypeVar

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid

MOST_LINKS = 64
FRAME_LIMIT = 1500
"""Bytes, without the Ethernet header."""
TEXT_LIMIT = 255
"""Bytes of a name, an identifier or a description, as the standard has it."""
T = TypeVar("T")
Part = tuple[int, bytes]
"""Type and value."""
POINTER = "/inventory/lldp"
MAC_BYTES = 6
LAST_VLAN = 4094
PRINTABLE = range(0x20, 0x7F)
_LINK = re.compile(r"[A-Za-z0-9._@-]{1,15}")
PORT_VLAN = b"\x00\x80\xc2\x01"
"""IEEE 802.1, subtype 1."""
_ADDRESS_BYTES = {1: 4, 2: 16}
"""Of address families: IPv4, IPv6."""


class Tlv(IntEnum):
    """Types of the parts a frame is made of. The first three come first, in this order, and once each."""

    END = 0
    CHASSIS = 1
    PORT = 2
    LIFETIME = 3
    PORT_DESCRIPTION = 4
    NAME = 5
    MANAGEMENT = 8
    ORGANISATION = 127


MANDATORY = (Tlv.CHASSIS, Tlv.PORT, Tlv.LIFETIME)


@dataclass(frozen=True)
class Kinds:
    """Which subtypes of an identifier are a MAC and a network address. Others are text, if they can be read."""

    mac: int
    address: int


CHASSIS_KINDS = Kinds(mac=4, address=5)
PORT_KINDS = Kinds(mac=3, address=4)


@dataclass(frozen=True)
class Neighbour:
    """Who is at the other end of a cable. What it did not say is empty."""

    chassis: str
    port: str
    name: str = ""
    port_description: str = ""
    management: str = ""
    """An address where it is managed."""
    vlan: int = 0
    """What frames without a tag belong to there."""

    def as_json(self) -> JsonObject:
        return {name: value for name, value in asdict(self).items() if value}


def read_neighbours(told: Json) -> JsonObject:
    """What a machine heard, link -> frame in base64, as neighbours: link -> what that one said of itself."""
    if not isinstance(told, dict):
        raise Invalid("What was heard by LLDP is an object: link -> frame, in base64.", POINTER)
    if len(told) > MOST_LINKS:
        raise Invalid(f"Frames of {len(told)} links are too many; at most {MOST_LINKS} can be told.", POINTER)
    found = {link: read_frame(_frame(link, sent)) for link, sent in told.items()}
    return {link: neighbour.as_json() for link, neighbour in found.items() if neighbour is not None}


def _frame(link: str, sent: Json) -> bytes:
    if not _LINK.fullmatch(link):
        raise Invalid(f"{link[:40]!r} is no name of a link.", POINTER)
    pointer = f"{POINTER}/{link}"
    if not isinstance(sent, str):
        raise Invalid(f"What {link} heard is not a frame in base64.", pointer)
    if len(sent) > (FRAME_LIMIT + 2) // 3 * 4:
        raise Invalid(f"What {link} heard is longer than a frame, which has {FRAME_LIMIT} bytes at most.", pointer)
    try:
        return base64.b64decode(sent, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"What {link} heard is not a frame in base64.", pointer) from None


def read_frame(frame: bytes) -> Neighbour | None:
    """The neighbour that sent it. None: it is no proper frame, or its sender says that it goes away."""
    parts = _parts(frame)
    if tuple(kind for kind, _ in parts[:3]) != MANDATORY or any(kind in MANDATORY for kind, _ in parts[3:]):
        return None
    (_, first), (_, second), (_, lifetime), *others = parts
    chassis, port = _identifier(first, CHASSIS_KINDS), _identifier(second, PORT_KINDS)
    if not chassis or not port or len(lifetime) < 2 or lifetime[:2] == b"\0\0":
        return None
    return Neighbour(
        chassis,
        port,
        name=_first(others, Tlv.NAME, _text) or "",
        port_description=_first(others, Tlv.PORT_DESCRIPTION, _text) or "",
        management=_first(others, Tlv.MANAGEMENT, _management) or "",
        vlan=_first(others, Tlv.ORGANISATION, _vlan) or 0,
    )


def _parts(frame: bytes) -> list[Part]:
    """All up to the end that the frame has or says it has; what follows that is padding. None of them if one is cut."""
    found: list[Part] = []
    at = 0
    while at < len(frame):
        head = int.from_bytes(frame[at : at + 2])
        kind, length = head >> 9, head & 0x1FF
        at += 2 + length
        if at > len(frame):
            return []
        if kind == Tlv.END:
            break
        found.append((kind, frame[at - length : at]))
    return found


def _first(parts: list[Part], kind: Tlv, read: Callable[[bytes], T]) -> T | None:
    """What the first of a kind says. One that does not fit is passed over, as the standard wants."""
    return next((said for found, value in parts if found == kind and (said := read(value))), None)


def _identifier(value: bytes, kinds: Kinds) -> str:
    """Of a chassis or port, where it is neither an address nor text: its bytes."""
    kind, said = value[:1], value[1:]
    if not 1 <= len(said) <= TEXT_LIMIT:
        return ""
    if kind[0] == kinds.mac:
        return said.hex(":") if len(said) == MAC_BYTES else ""
    if kind[0] == kinds.address:
        return _address(said)
    text = said.rstrip(b"\0")
    return _text(text) if all(one in PRINTABLE for one in text) and text.strip() else f"0x{said.hex()}"


def _text(value: bytes) -> str:
    """As much of it as can be printed anywhere."""
    return bytes(one for one in value if one in PRINTABLE).decode().strip() if len(value) <= TEXT_LIMIT else ""


def _address(value: bytes) -> str:
    """Of IPv4 or IPv6, and of somebody."""
    family, packed = value[:1], value[1:]
    if not family or _ADDRESS_BYTES.get(family[0]) != len(packed):
        return ""
    address = ip_address(packed)
    return "" if address.is_unspecified else str(address)


def _management(value: bytes) -> str:
    """An address, then the number of an interface (5 bytes) and an object identifier, which nobody here asks for."""
    size = value[0] if value else 0
    rest = value[1 + size :]
    return _address(value[1 : 1 + size]) if len(rest) >= 6 and len(rest) == 6 + rest[5] else ""


def _vlan(value: bytes) -> int:
    if not value.startswith(PORT_VLAN) or len(value) != len(PORT_VLAN) + 2:
        return 0
    vlan = int.from_bytes(value[-2:])
    return vlan if vlan <= LAST_VLAN else 0
