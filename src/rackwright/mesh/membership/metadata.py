"""The sections of a member's 512 bytes of metadata: numbered, so that the parts that write them need not know each
other."""

import enum

from rackwright.mesh.membership.member import MAX_METADATA
from rackwright.mesh.membership.wire import BadMessage, Reader, encode_blob


class Section(enum.IntEnum):
    """The number of a section. A wire enum: only append, never renumber."""

    HEALTH = 1
    DATASTORE = 2


def pack_sections(sections: dict[Section, bytes]) -> bytes:
    """Return the metadata made of these sections."""
    packed = b"".join(
        bytes([section]) + encode_blob(sections[section]) for section in sorted(sections) if sections[section]
    )
    if len(packed) > MAX_METADATA:
        raise ValueError(f"the metadata of this member has {len(packed)} bytes, at most {MAX_METADATA} travel")
    return packed


def unpack_sections(metadata: bytes) -> dict[Section, bytes]:
    """Return the sections of metadata. Unknown ones, of a newer version, are skipped; malformed metadata has none."""
    reader = Reader(metadata)
    sections: dict[Section, bytes] = {}
    try:
        while not reader.at_end:
            number, content = reader.u8(), reader.blob()
            if number in Section.__members__.values():
                sections[Section(number)] = content
    except BadMessage:
        return {}
    return sections
