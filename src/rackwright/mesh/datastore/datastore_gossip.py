"""The hint about its part in the datastore that a server sends with its gossip.

A hint is not the truth: code that acts on it checks etcd itself.
"""

import enum
from dataclasses import dataclass

from rackwright.mesh.address import parse_address
from rackwright.mesh.membership.member import MemberRecord
from rackwright.mesh.membership.metadata import Section, unpack_sections

SIZE = 10


class Part(enum.IntEnum):
    """The part that a server has in the datastore. A wire enum: only append, never renumber."""

    NONE = 0
    STARTING = 1
    LEARNER = 2
    VOTER = 3
    FAILING = 4


@dataclass(frozen=True, slots=True)
class Hint:
    """A server's part in the datastore, and the ports of its etcd."""

    part: Part = Part.NONE
    eligible: bool = False
    era: int = 0
    """Counts the datastores of this cluster: one that was recovered from a snapshot is a new one."""
    client_port: int = 0
    peer_port: int = 0

    def pack(self) -> bytes:
        flags = bytes([self.part, self.eligible])
        return flags + b"".join(
            number.to_bytes(size, "big") for number, size in ((self.era, 4), (self.client_port, 2), (self.peer_port, 2))
        )


def hint_of(record: MemberRecord) -> Hint:
    """Return the hint in a member's record; an empty one if there is none."""
    packed = unpack_sections(record.metadata).get(Section.DATASTORE, b"")
    if len(packed) != SIZE or packed[0] not in Part.__members__.values():
        return Hint()
    numbers = (int.from_bytes(packed[start:end], "big") for start, end in ((2, 6), (6, 8), (8, 10)))
    return Hint(Part(packed[0]), packed[1] == 1, *numbers)


def client_url(record: MemberRecord, hint: Hint) -> str:
    return _url(record, hint.client_port)


def peer_url(record: MemberRecord, hint: Hint) -> str:
    return _url(record, hint.peer_port)


def _url(record: MemberRecord, port: int) -> str:
    host = parse_address(record.address).host
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
