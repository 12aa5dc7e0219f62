"""Events as they lie in the datastore: many of them in one value, each a line of JSON, and how one is pointed at.

A datastore that is asked for one thing a thousand times is slow, and one that is asked for a thousand things is not. So
what a target has to tell within a moment goes into one value, packed. Nobody has to read an event to pass it on.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackwright.mesh.datastore.etcd_client import Change
from rackwright.mesh.errors import BadRequest

MARK = b"\x01"
"""No JSON begins with it."""
MAX_BATCH = 512 * 1024
MAX_UNPACKED = 16 * 1024 * 1024
_ODD = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
"""JSON escapes these. What is passed on unread must not play with somebody's terminal."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event that was read, or one other change below the same prefix."""

    cursor: str
    """Where to go on after it."""
    key: str
    line: bytes
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place among the events: after the `count` first events of `key`, as it was written at `revision`."""

    revision: int = 0
    key: str = ""
    """Empty if all of that revision was seen."""
    count: int = 0
    """0 for all of that key."""


def read_cursor(text: str) -> Cursor:
    revision, _, place = text.partition(":")
    key, _, count = place.rpartition("#") if "#" in place else (place, "", "0")
    if text and not (revision.isdecimal() and count.isdecimal()):
        raise BadRequest(f"{text!r} is no cursor; take one from an event")
    return Cursor(int(revision or 0), key, int(count))


def pack(lines: Sequence[bytes]) -> bytes:
    return MARK + zlib.compress(b"\n".join(lines), 1)


def unpack(value: bytes) -> list[bytes]:
    """The events of a value, none if it is no value that an engine wrote."""
    if not value.startswith(MARK):
        return [value]
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(value[1:], MAX_UNPACKED)
    except zlib.error:
        return []
    return [] if unpacker.unconsumed_tail or _ODD.search(text) else text.split(b"\n")


def is_one_line(text: bytes) -> bool:
    """Whether it can be passed on as a line, and to a terminal, unread."""
    return b"\n" not in text and not _ODD.search(text)


def batches(lines: Sequence[bytes]) -> Iterable[list[bytes]]:
    """Parts of them that fit into a value."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) > MAX_BATCH:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


def told(change: Change, after: Cursor | None = None) -> list[Told]:
    """What a change tells, from the cursor on."""
    item = change.item
    place = f"{item.modified}:{item.key}"
    if change.deleted or not item.value.startswith(MARK):
        # A key may hold the sign that comes before a count: every member may write any key.
        return [Told(f"{place}#0" if "#" in item.key else place, item.key, item.value, change.deleted)]
    lines = unpack(item.value)
    first = after.count if after and (after.revision, after.key) == (item.modified, item.key) else 0
    return [Told(f"{place}#{number}", item.key, lines[number - 1]) for number in range(first + 1, len(lines) + 1)]
