"""Server-sent events: a reader that makes events of the lines of a stream."""

import json
from typing import Any, NamedTuple


class StreamEvent(NamedTuple):
    """An event of a stream: its id, after which a reader goes on when the connection broke, its kind and its data."""

    id: str
    kind: str
    data: Any


class EventReader:
    """Makes events of the lines of a stream."""

    def __init__(self) -> None:
        self._id, self._kind, self._data = "", "message", ""

    def read_line(self, line: str) -> StreamEvent | None:
        """Take a line without its newline; return the event that the line completes, if any."""
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
