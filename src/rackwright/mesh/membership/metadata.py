"""What a member's 512 bytes of metadata are made of: numbered sections, so that its parts need not know each other."""

import enum

from rackwright.mesh.membership.member import MAX_METADATA
from rackwright.mesh.membership.wire import BadMessage, Reader, blob


class Section(enum.IntEnum):
    """A wire enum: only append, never renumber."""

    HEALTH = 1
    DATASTORE = 2


def pack(sections: dict[Section, bytes]) -> bytes:
    packed = b"".join(bytes([section]) + blob(sections[section]) for section in sorted(sections) if sections[section])
    if len(packed) > MAX_METADATA:
        raise ValueError(f"the metadata of this member has {len(packed)} bytes, at most {MAX_METADATA} travel")
    return packed


def unpack(metadata: bytes) -> dict[Section, bytes]:
    """Sections of a newer version than ours are skipped; metadata that is none of ours is no sections at all."""
    reader = Reader(metadata)
    found: dict[Section, bytes] = {}
    try:
        while not reader.at_end:
            number, content = reader.u8(), reader.blob()
            if number in Section.__members__.values():
                found[Section(number)] = content
    except BadMessage:
        return {}
    return found
