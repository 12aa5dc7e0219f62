"""The reader of LLDP frames (IEEE 802.1AB), in which the neighbour of a link, mostly a switch, describes itself.

A frame comes from a stranger: it is read strictly, all that is taken from it is short and printable, and a frame that
does not fit is ignored, for a machine cannot help what its neighbour sends. A machine that passes on something that is
not even a frame is wrong itself, and gets an error.
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
    """Types of the parts of a frame. CHASSIS, PORT and LIFETIME come first, in this order, and once each."""

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
class IdentifierSubtypes:
    """The subtypes of an identifier that are a MAC and a network address. Others are text, if they can be read."""

    mac: int
    address: int


CHASSIS_SUBTYPES = IdentifierSubtypes(mac=4, address=5)
PORT_SUBTYPES = IdentifierSubtypes(mac=3, address=4)


@dataclass(frozen=True)
class Neighbour:
    """The device at the other end of a cable. What it did not say is empty."""

    chassis: str
    port: str
    name: str = ""
    port_description: str = ""
    management: str = ""
    """An address where it is managed."""
    vlan: int = 0
    """The VLAN of frames without a tag on its port."""

    def as_json(self) -> JsonObject:
        return {name: value for name, value in asdict(self).items() if value}


def read_neighbours(frames: Json) -> JsonObject:
    """Return the neighbours of a machine, by link, from the frames that it received: link -> frame in base64."""
    if not isinstance(frames, dict):
        raise Invalid("What was heard by LLDP is an object: link -> frame, in base64.", POINTER)
    if len(frames) > MOST_LINKS:
        raise Invalid(f"Frames of {len(frames)} links are too many; at most {MOST_LINKS} can be told.", POINTER)
    neighbours = {link: read_frame(_decode_frame(link, encoded)) for link, encoded in frames.items()}
    return {link: neighbour.as_json() for link, neighbour in neighbours.items() if neighbour is not None}


def _decode_frame(link: str, encoded: Json) -> bytes:
    if not _LINK.fullmatch(link):
        raise Invalid(f"{link[:40]!r} is no name of a link.", POINTER)
    pointer = f"{POINTER}/{link}"
    if not isinstance(encoded, str):
        raise Invalid(f"What {link} heard is not a frame in base64.", pointer)
    if len(encoded) > (FRAME_LIMIT + 2) // 3 * 4:
        raise Invalid(f"What {link} heard is longer than a frame, which has {FRAME_LIMIT} bytes at most.", pointer)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"What {link} heard is not a frame in base64.", pointer) from None


def read_frame(frame: bytes) -> Neighbour | None:
    """Return the neighbour that sent a frame; None if it is no proper frame, or its sender says that it goes away."""
    parts = _parts(frame)
    if tuple(kind for kind, _ in parts[:3]) != MANDATORY or any(kind in MANDATORY for kind, _ in parts[3:]):
        return None
    (_, first), (_, second), (_, lifetime), *others = parts
    chassis, port = _identifier(first, CHASSIS_SUBTYPES), _identifier(second, PORT_SUBTYPES)
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
    """Return the parts of a frame up to its END part or its last byte; none at all if one is cut off.

    What follows END is padding.
    """
    parts: list[Part] = []
    position = 0
    while position < len(frame):
        head = int.from_bytes(frame[position : position + 2])
        kind, length = head >> 9, head & 0x1FF
        position += 2 + length
        if position > len(frame):
            return []
        if kind == Tlv.END:
            break
        parts.append((kind, frame[position - length : position]))
    return parts


def _first(parts: list[Part], kind: Tlv, read: Callable[[bytes], T]) -> T | None:
    """Return the value of the first part of a kind; a part that does not fit is skipped, as the standard demands."""
    return next((result for part, value in parts if part == kind and (result := read(value))), None)


def _identifier(value: bytes, subtypes: IdentifierSubtypes) -> str:
    """Return the identifier of a chassis or port: a MAC, an address, text, or else its bytes in hex."""
    subtype, identifier = value[:1], value[1:]
    if not 1 <= len(identifier) <= TEXT_LIMIT:
        return ""
    if subtype[0] == subtypes.mac:
        return identifier.hex(":") if len(identifier) == MAC_BYTES else ""
    if subtype[0] == subtypes.address:
        return _address(identifier)
    text = identifier.rstrip(b"\0")
    return _text(text) if all(byte in PRINTABLE for byte in text) and text.strip() else f"0x{identifier.hex()}"


def _text(value: bytes) -> str:
    """Return the characters of a text that can be printed anywhere."""
    return bytes(byte for byte in value if byte in PRINTABLE).decode().strip() if len(value) <= TEXT_LIMIT else ""


def _address(value: bytes) -> str:
    """Return an IPv4 or IPv6 address; an empty text if it is neither, or is the unspecified address."""
    family, packed = value[:1], value[1:]
    if not family or _ADDRESS_BYTES.get(family[0]) != len(packed):
        return ""
    address = ip_address(packed)
    return "" if address.is_unspecified else str(address)


def _management(value: bytes) -> str:
    """Return the management address.

    After it come the number of an interface (5 bytes) and an object identifier, which are not used.
    """
    size = value[0] if value else 0
    tail = value[1 + size :]
    return _address(value[1 : 1 + size]) if len(tail) >= 6 and len(tail) == 6 + tail[5] else ""


def _vlan(value: bytes) -> int:
    if not value.startswith(PORT_VLAN) or len(value) != len(PORT_VLAN) + 2:
        return 0
    vlan = int.from_bytes(value[-2:])
    return vlan if vlan <= LAST_VLAN else 0
