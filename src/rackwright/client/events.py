"""Server-sent events: what the lines of a stream say."""

import json
from typing import Any, NamedTuple


class StreamEvent(NamedTuple):
    """An event of a stream: its place, which a reader goes on from after a break, its kind and its data."""

    id: str
    kind: str
    data: Any


class EventReader:
    """Puts the lines of a stream together into events."""

    def __init__(self) -> None:
        self._id, self._kind, self._data = "", "message", ""

    def read_line(self, line: str) -> StreamEvent | None:
        """Take one line without its end; return the event that it completes."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            return self._complete()
        if name == "id":
            self._id = value
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data += value
        return None

    def _complete(self) -> StreamEvent | None:
        kind, data = self._kind, self._data
        self._kind, self._data = "message", ""
        return StreamEvent(self._id, kind, json.loads(data)) if data else None
