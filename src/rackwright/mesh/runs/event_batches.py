"""The format of events in the datastore: a value packs many events, each a line of JSON; a cursor points at an event.

A thousand requests to the datastore for an event each are slow, a request for a thousand events is not. So the events
that a target has within a moment go into a single value, packed. Events are passed on without being parsed.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackwright.mesh.datastore.etcd_client import Change
from rackwright.mesh.errors import BadRequest

MARK = b"\x01"
"""The first byte of a packed value. No JSON begins with it."""
MAX_BATCH = 512 * 1024
MAX_UNPACKED = 16 * 1024 * 1024
_ODD = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
"""Control characters, which JSON escapes. What is passed on unparsed must not control somebody's terminal."""


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event that was read, or another change below the same prefix."""

    cursor: str
    """Where to continue reading after this event"""
    key: str
    line: bytes
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position among the events: after the first `count` events of `key`, as written at `revision`."""

    revision: int = 0
    key: str = ""
    """Empty if all of that revision was read"""
    count: int = 0
    """0 if all of that key was read"""


def read_cursor(text: str) -> Cursor:
    revision, _, position = text.partition(":")
    key, _, count = position.rpartition("#") if "#" in position else (position, "", "0")
    if text and not (revision.isdecimal() and count.isdecimal()):
        raise BadRequest(f"{text!r} is no cursor; take one from an event")
    return Cursor(int(revision or 0), key, int(count))


def pack(lines: Sequence[bytes]) -> bytes:
    return MARK + zlib.compress(b"\n".join(lines), 1)


def unpack(value: bytes) -> list[bytes]:
    """Return the events of a value, none if the value is not one that an engine wrote."""
    if not value.startswith(MARK):
        return [value]
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(value[1:], MAX_UNPACKED)
    except zlib.error:
        return []
    return [] if unpacker.unconsumed_tail or _ODD.search(text) else text.split(b"\n")


def is_one_line(text: bytes) -> bool:
    """Return whether a text can be passed on unparsed, as a line and to a terminal."""
    return b"\n" not in text and not _ODD.search(text)


def batches(lines: Sequence[bytes]) -> Iterable[list[bytes]]:
    """Split lines into batches, each small enough for a value."""
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


def event_lines(change: Change, after: Cursor | None = None) -> list[EventLine]:
    """Return the events in a change, from the cursor on."""
    item = change.item
    position = f"{item.modified}:{item.key}"
    if change.deleted or not item.value.startswith(MARK):
        # A key may contain "#", the sign before a count: every member may write any key.
        return [EventLine(f"{position}#0" if "#" in item.key else position, item.key, item.value, change.deleted)]
    lines = unpack(item.value)
    first = after.count if after and (after.revision, after.key) == (item.modified, item.key) else 0
    return [
        EventLine(f"{position}#{number}", item.key, lines[number - 1]) for number in range(first + 1, len(lines) + 1)
    ]
