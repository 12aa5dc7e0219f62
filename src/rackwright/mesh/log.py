"""The agent's structured log: one JSON object a line, with one word for the event, and fields. No secret is a field.

Lines that strangers can cause are limited per minute, and those left out are counted: a flood must not fill the disk.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

Field = str | int | float | bool | None | list[str]
BURST = 20
"""Lines of one kind a minute that strangers can cause."""
MEMBER_BURST = 1000
"""Lines of one kind a minute about members."""


class Log:
    """The log of one agent; `write` takes its lines (by default, they go to standard error)."""

    def __init__(self, server: str, write: Callable[[str], object] | None = None) -> None:
        self.server = server
        self._write = write or _to_stderr
        self._seen: dict[str, tuple[float, int]] = {}

    def info(self, event: str, **fields: Field) -> None:
        self._line("info", event, fields)

    def warning(self, event: str, **fields: Field) -> None:
        self._line("warning", event, fields)

    def error(self, event: str, **fields: Field) -> None:
        self._line("error", event, fields)

    def refused(self, reason: str, **fields: Field) -> None:
        """Log that something from outside was refused."""
        self._bounded(reason, "warning", "refused", {"reason": reason, **fields})

    def member(self, event: str, *, matters: bool, **fields: Field) -> None:
        """Log an event about a member.

        Limited too: a rogue member may tell of thousands of members that are made up.
        """
        self._bounded(event, "warning" if matters else "info", event, dict(fields), MEMBER_BURST)

    def _bounded(self, kind: str, level: str, event: str, fields: dict[str, Field], burst: int = BURST) -> None:
        """Write a line unless `burst` lines of its kind were written in this minute; those left out are counted."""
        begin, count = self._seen.get(kind, (time.monotonic(), 0))
        if time.monotonic() - begin >= 60:
            if count > burst:
                self._line(level, f"{event}_more", {"reason": kind, "not_shown": count - burst})
            begin, count = time.monotonic(), 0
        self._seen[kind] = (begin, count + 1)
        if count < burst:
            self._line(level, event, fields)

    def failed(self, part: str, **fields: Field) -> None:
        """Log that a part of the agent failed. Limited like lines that strangers can cause: they may be the cause."""
        self._bounded(f"failed {part}", "error", "part_failed", {"part": part, **fields})

    def _line(self, level: str, event: str, fields: dict[str, Field]) -> None:
        head = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "server": self.server}
        self._write(json.dumps({**head, "event": event, **fields}, ensure_ascii=True))


def _to_stderr(line: str) -> None:
    # A full disk, or a reader that went away: the line is lost, and the agent goes on.
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
