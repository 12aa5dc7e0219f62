"""The logs of running runs: collected in memory, and written to the store several times a second.

Each run may write a number of bytes between two flushes, its share of what the server takes in all. A log whose run has
used up its share is full: the jig stops reading from the node, and so that node waits, not the server and not another
node's run. While the database is away no flush makes room, so nothing is lost. A log has a limit (`LOG_LIMIT`); what
comes beyond it is counted and its end kept, and both are written when the run ends. The rest of a log is stored in the
transaction that settles its run: where a run is seen to have ended, its log is whole, also if the server dies then.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from rackwright.annealer.loop import Loop
from rackwright.domain.foreign import storable_text
from rackwright.store.db.session import DATABASE_TROUBLE, Session, first_line
from rackwright.store.runs.run_logs import LOG_LIMIT, append_logs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ALLOWANCE_BYTES = 2 * 2**20
"""Bytes that all runs together may write between two flushes."""
MAX_SHARE_BYTES = 2**19
MIN_SHARE_BYTES = 2**14
OVERDRAFT_SHARES = 8
"""Shares that are kept of a run that writes on while its log is full; more is left out, and the log says so there."""
TAIL_BYTES = 2**16
"""Bytes that are kept of the end of a log that is too long: people look there first."""
MARK_BYTES = 2**10
"""Bytes of the limit that are reserved for the notes about what is left out."""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class RunLog:
    """The log of one run. It is called with text, and is `full` once the run has written its share."""

    def __init__(self, logs: "RunLogs") -> None:
        self._logs = logs
        self._pending: list[str] = []
        self._pending_bytes = 0
        """Bytes since the last flush, those left out included."""
        self._taken_bytes = 0
        self._kept_bytes = 0
        self._omitted_bytes = 0
        self._tail: list[str] = []
        """The end of the text that was left out because the log is too long."""
        self._tail_bytes = 0
        self._room = asyncio.Event()
        self.ended = False

    def __call__(self, text: str) -> None:
        text = storable_text(text)
        if not text:
            return
        is_overdrawn = self._pending_bytes > OVERDRAFT_SHARES * self._logs.share
        self._pending_bytes += (size := _size(text))
        if is_overdrawn and not self._is_cut:
            self._omitted_bytes += size
            return
        if not self._is_cut:
            self._note_omitted()
        room_left = LOG_LIMIT - TAIL_BYTES - MARK_BYTES - self._kept_bytes
        if self._is_cut or size > room_left:
            self._omit(text, max(0, room_left))
        else:
            self._keep(text)

    @property
    def full(self) -> bool:
        return self._pending_bytes >= self._logs.share

    async def room(self) -> None:
        """Wait until the run may write more."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """End the log: note how much was left out, and append the end of it."""
        tail = _end_of("".join(self._tail), TAIL_BYTES)
        self._omitted_bytes -= _size(tail)
        self._note_omitted()
        self._keep(tail)
        self._tail, self._tail_bytes = [], 0
        self.ended = True

    def take(self) -> str:
        """Take the text that is to be stored now."""
        text, self._pending = "".join(self._pending), []
        self._taken_bytes = self._pending_bytes
        return text

    def put_back(self, text: str) -> None:
        self._pending.insert(0, text)

    def mark_written(self) -> None:
        """Note that the text that was taken is stored, so that there is room for as much."""
        self._pending_bytes -= self._taken_bytes
        self._room.set()

    @property
    def _is_cut(self) -> bool:
        return bool(self._tail)

    def _keep(self, text: str) -> None:
        if text:
            self._pending.append(text)
            self._kept_bytes += _size(text)

    def _omit(self, text: str, room_left: int) -> None:
        if not self._is_cut:
            head = _beginning_of(text, room_left)
            self._keep(head)
            self._keep(
                f"\n[The log is cut here, after {_amount(self._kept_bytes)}; its end follows when the run is over.]\n"
            )
            text = text[len(head) :]
        size = _size(text)
        self._omitted_bytes += size
        self._tail.append(text)
        self._tail_bytes += size
        if self._tail_bytes > 2 * TAIL_BYTES:
            self._tail = [_end_of("".join(self._tail), TAIL_BYTES)]
            self._tail_bytes = _size(self._tail[0])

    def _note_omitted(self) -> None:
        if self._omitted_bytes > 0:
            self._keep(f"\n[{_amount(self._omitted_bytes)} of output are left out here.]\n")
            self._omitted_bytes = 0


class RunLogs:
    """The logs of all runs of this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, RunLog] = {}
        self._writing = asyncio.Lock()
        """Held while texts are being stored: what came later is not stored before them."""

    @contextmanager
    def writer(self, run_id: int) -> Iterator[RunLog]:
        """Open the log to which a jig writes the output of one run, for as long as that runs."""
        log = self._open[run_id] = RunLog(self)
        try:
            yield log
        finally:
            log.end()

    @property
    def share(self) -> int:
        """Bytes that each run may write between two flushes."""
        return min(max(ALLOWANCE_BYTES // max(1, len(self._open)), MIN_SHARE_BYTES), MAX_SHARE_BYTES)

    async def flush(self) -> None:
        """Store the texts of all logs; what cannot be stored yet stays for the next time."""
        try:
            await self._write()
        except DATABASE_TROUBLE as error:
            log.warning("cannot write logs of runs yet: %s", first_line(error))

    async def flush_for_ever(self, every: float) -> None:
        """Store the texts of all logs every so many seconds, until cancelled."""
        await Loop(self._store, tick=every, purpose="write logs of runs", at_start=False).run(self._write)

    @asynccontextmanager
    async def rest_of(self, run_ids: Iterable[int]) -> AsyncIterator[list[tuple[int, str]]]:
        """Take the texts not stored yet of the logs of these ended runs, to be stored within the block.

        If the block fails, they are as they were, to be stored by a flush or the next block.
        """
        ids = [id for id in run_ids if id in self._open]
        logs: dict[int, RunLog] = {}
        if ids:
            async with self._writing:  # a flush may be about to store, and close, some of them
                logs = {id: self._open.pop(id) for id in ids if id in self._open}
        texts = {id: log.take() for id, log in logs.items()}
        try:
            yield [(id, text) for id, text in texts.items() if text]
        except BaseException:
            for id, run_log in logs.items():
                run_log.put_back(texts[id])
            self._open |= logs
            raise

    async def _write(self) -> None:
        async with self._writing:
            ended = [id for id, log in self._open.items() if log.ended]
            texts = {id: text for id, log in self._open.items() if (text := log.take())}
            if texts:
                try:
                    await self._store.change(
                        lambda session: append_logs(session, list(texts.items()), bounded=True), actor="annealer"
                    )
                except BaseException:
                    for id, text in texts.items():
                        self._open[id].put_back(text)
                    raise
            for run_log in self._open.values():
                run_log.mark_written()
            for id in ended:
                del self._open[id]


async def settle_with_logs(
    session: Session, finished: Sequence[FinishedRun], texts: Sequence[tuple[int, str]]
) -> list[int]:
    """Write the results of runs and the rest of their logs; return the ids of the runs that took their result."""
    settled = await settle_runs(session, finished)
    await append_logs(session, texts, bounded=True)
    return settled


def _beginning_of(text: str, size: int) -> str:
    """Return the first characters of a text that have so many bytes."""
    return text[:size] if text.isascii() else text.encode()[:size].decode(errors="ignore")


def _end_of(text: str, size: int) -> str:
    """Return the last characters of a text that have so many bytes."""
    return text[-size:] if text.isascii() else text.encode()[-size:].decode(errors="ignore")


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size} bytes"
