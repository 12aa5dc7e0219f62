"""Server-sent events, line by line."""

from rackwright.client.events import EventReader, StreamEvent

STREAM = """\
: a comment keeps the connection open

id: 1-1
event: line
data: "first"

data: {"half":
data:  true}

id: 1-3

id: 1-4
data:[1]
"""


def test_lines_become_events_at_the_empty_line_after_them() -> None:
    reader = EventReader()
    events = [event for line in STREAM.splitlines() if (event := reader.read_line(line))]
    assert events == [StreamEvent("1-1", "line", "first"), StreamEvent("1-1", "message", {"half": True})]
    assert reader.read_line("") == StreamEvent("1-4", "message", [1])
