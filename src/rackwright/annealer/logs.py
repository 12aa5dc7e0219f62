"""The logs of running runs: collected in memory, written to the store several times a second.

Each run has an allowance between two writings, its share of what the server takes in all. One that used it up is full:
its jig stops listening to the node, and so the node waits, not the server and not another node's run. While the
database is away nothing gives room, so nothing is lost. A log has an end (`LOG_LIMIT`); what comes then is counted, the
last of it kept, and both written when the run ends.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rackwright.annealer.loop import Loop
from rackwright.domain.foreign import storable_text
from rackwright.store.db.session import DATABASE_TROUBLE, first_line
from rackwright.store.runs.run_logs import LOG_LIMIT, append_logs
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ALLOWANCE = 2 * 2**20
"""Bytes that all runs together may say between two writings."""
LARGEST_SHARE = 2**19
SMALLEST_SHARE = 2**14
OVERDRAFT = 8
"""Shares that are kept of a run that talks on while it is full; what is more is left out, and the log says so there."""
LAST_KEPT = 2**16
"""Bytes of the end of a log that is too long: what people look for first."""
MARK_ROOM = 2**10
"""Bytes of the limit that are for what is said about the cut."""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class RunLog:
    """The log of one run. Called with text; `full` once the run has said its share."""

    def __init__(self, logs: "RunLogs") -> None:
        self._logs = logs
        self._pending: list[str] = []
        self._said = 0
        """Bytes since the last writing, those left out included."""
        self._taken = 0
        self._kept = 0
        self._left_out = 0
        self._last: list[str] = []
        """The end of what was left out because the log is too long."""
        self._last_size = 0
        self._room = asyncio.Event()
        self.ended = False

    def __call__(self, text: str) -> None:
        text = storable_text(text)
        if not text:
            return
        talks_on = self._said > OVERDRAFT * self._logs.share
        self._said += (size := _size(text))
        if talks_on and not self._cut:
            self._left_out += size
            return
        if not self._cut:
            self._tell_left_out()
        left = LOG_LIMIT - LAST_KEPT - MARK_ROOM - self._kept
        if self._cut or size > left:
            self._beyond_limit(text, max(0, left))
        else:
            self._keep(text)

    @property
    def full(self) -> bool:
        return self._said >= self._logs.share

    async def room(self) -> None:
        """Wait until the run may say more."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """The run is over: say how much was left out, and show the last of it."""
        last = _end_of("".join(self._last), LAST_KEPT)
        self._left_out -= _size(last)
        self._tell_left_out()
        self._keep(last)
        self._last, self._last_size = [], 0
        self.ended = True

    def take(self) -> str:
        """What is to be written now."""
        text, self._pending = "".join(self._pending), []
        self._taken = self._said
        return text

    def put_back(self, text: str) -> None:
        self._pending.insert(0, text)

    def written(self) -> None:
        """What was taken is stored, so there is room for as much."""
        self._said -= self._taken
        self._room.set()

    @property
    def _cut(self) -> bool:
        return bool(self._last)

    def _keep(self, text: str) -> None:
        if text:
            self._pending.append(text)
            self._kept += _size(text)

    def _beyond_limit(self, text: str, left: int) -> None:
        if not self._cut:
            head = _beginning_of(text, left)
            self._keep(head)
            self._keep(f"\n[The log is cut here, after {_amount(self._kept)}; its end follows when the run is over.]\n")
            text = text[len(head) :]
        size = _size(text)
        self._left_out += size
        self._last.append(text)
        self._last_size += size
        if self._last_size > 2 * LAST_KEPT:
            self._last = [_end_of("".join(self._last), LAST_KEPT)]
            self._last_size = _size(self._last[0])

    def _tell_left_out(self) -> None:
        if self._left_out > 0:
            self._keep(f"\n[{_amount(self._left_out)} of output are left out here.]\n")
            self._left_out = 0


class RunLogs:
    """The logs of all runs of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, RunLog] = {}

    @contextmanager
    def writer(self, run_id: int) -> Iterator[RunLog]:
        """Where a jig writes the output of one run, for as long as that runs."""
        log = self._open[run_id] = RunLog(self)
        try:
            yield log
        finally:
            log.end()

    @property
    def share(self) -> int:
        """Bytes that each run may say between two writings."""
        return min(max(ALLOWANCE // max(1, len(self._open)), SMALLEST_SHARE), LARGEST_SHARE)

    async def flush(self) -> None:
        """Write what was said; what cannot be written yet stays for the next time."""
        try:
            await self._write()
        except DATABASE_TROUBLE as error:
            log.warning("cannot write logs of runs yet: %s", first_line(error))

    async def flush_for_ever(self, every: float) -> None:
        """Write what was said, every so many seconds, until cancelled."""
        await Loop(self._store, tick=every, purpose="write logs of runs", at_start=False).run(self._write)

    async def _write(self) -> None:
        ended = [id for id, log in self._open.items() if log.ended]
        taken = {id: text for id, log in self._open.items() if (text := log.take())}
        if taken:
            try:
                await self._store.change(
                    lambda session: append_logs(session, list(taken.items()), bounded=True), actor="annealer"
                )
            except BaseException:
                for id, text in taken.items():
                    self._open[id].put_back(text)
                raise
        for run_log in self._open.values():
            run_log.written()
        for id in ended:
            del self._open[id]


def _beginning_of(text: str, size: int) -> str:
    """The first characters of a text that have so many bytes."""
    return text[:size] if text.isascii() else text.encode()[:size].decode(errors="ignore")


def _end_of(text: str, size: int) -> str:
    """The last characters of a text that have so many bytes."""
    return text[-size:] if text.isascii() else text.encode()[-size:].decode(errors="ignore")


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size} bytes"
