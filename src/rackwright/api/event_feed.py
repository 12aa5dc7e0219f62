"""The newest events of the outbox, read by one reader in a process for however many subscribers.

The last events are kept in a ring. A subscriber is nothing but a cursor, so a slow one costs no memory: events that
have left the ring are read from the database, as for a subscriber that comes back after a while. The reader wakes when
this process commits and looks every `TICK` seconds for what other processes did. There is no NOTIFY: it would serialise
the commits of all writers.
"""

import asyncio
import bisect
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator

from rackwright.annealer.loop import AT_ONCE, Loop
from rackwright.api.auth.limits import TooMany
from rackwright.store.events.outbox import Cursor, Event, check_cursor_kept, newest_cursor, read_events
from rackwright.store.store import Store

RING_SIZE = 10_000
MOST_STREAMS = 64
"""Streams that one user may have open at once."""
PAGE = 1000
TICK = 0.5
AT_MOST_EVERY = 0.05
"""Seconds between two looks, however busy the system is."""


class EventFeed:
    """The last events, as they become readable. The feed reads only while there are subscribers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.closing = False
        self._ring: deque[Event] = deque(maxlen=RING_SIZE)
        self._since: Cursor | None = None
        """The ring holds all events after this cursor; None: there is no reader."""
        self._tail = Cursor()
        self._subscribers = 0
        self._streams: Counter[str] = Counter()
        self._reader: asyncio.Task[None] | None = None
        self._loop = self._new_loop()
        """The loop that the reader runs."""
        self._ending_readers: set[asyncio.Task[None]] = set()
        """Readers that were told to stop and still wait for a last query."""
        self._new_events = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def subscribed(self) -> AsyncIterator[None]:
        """Subscribe: while this is open, `read_after` and `wait_for_events` work."""
        self._subscribers += 1
        try:
            if self._reader is None:
                self._loop = self._new_loop()
                self._reader = asyncio.create_task(self._loop.run(self._read_new), name="event feed")
            yield
        finally:
            self._subscribers -= 1
            if self._subscribers == 0:
                await self._stop_reader()

    @contextlib.asynccontextmanager
    async def stream_for(self, user: str) -> AsyncIterator[None]:
        """Subscribe, and count this as a stream of the user."""
        with self.count_stream(user):
            async with self.subscribed():
                yield

    @contextlib.contextmanager
    def count_stream(self, user: str) -> Iterator[None]:
        """Count a response of the user that stays open: a stream, or a page that waits for its first event."""
        self._streams[user] += 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]

    def check_stream_limit(self, user: str) -> None:
        """Refuse one more response that stays open to a user who has `MOST_STREAMS`."""
        if self._streams[user] >= MOST_STREAMS:
            raise TooMany(f"You have {MOST_STREAMS} event streams open already. Close some of them.")

    async def close(self) -> None:
        """End all waiting; streams end."""
        self.closing = True
        async with self._new_events:
            self._new_events.notify_all()

    async def wait_idle(self) -> None:
        """Wait until the feed has no query under way. There must be no subscribers."""
        if self._ending_readers:
            await asyncio.wait(self._ending_readers)

    async def read_after(self, cursor: Cursor) -> tuple[list[Event], Cursor]:
        """Return some events after the cursor, and the cursor up to which there are no others."""
        if self._since is not None and cursor >= self._since:
            ring = self._ring
            start = bisect.bisect_right(ring, cursor, key=lambda event: event.cursor)
            events = [ring[number] for number in range(start, min(start + PAGE, len(ring)))]
            return events, events[-1].cursor if events else max(cursor, self._tail)
        tail = self._tail
        async with self.store.read() as session:
            await check_cursor_kept(session, cursor)
            events = await read_events(session, cursor, PAGE)
        return events, events[-1].cursor if events else max(cursor, tail)

    async def wait_for_events(self, cursor: Cursor, timeout: float) -> None:
        """Wait until there may be events after the cursor, at most `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._new_events:
                await self._new_events.wait_for(lambda: self._tail > cursor or self.closing)

    async def _stop_reader(self) -> None:
        """Have the reader end by itself, between two queries: to break one off would cost its connection."""
        reader, self._reader, self._since = self._reader, None, None
        assert reader is not None
        self._ring.clear()
        self._ending_readers.add(reader)
        reader.add_done_callback(self._ending_readers.discard)
        self._loop.stop()
        await asyncio.wait({reader})  # a stream that is broken off here leaves the reader to end alone

    def _new_loop(self) -> Loop:
        """Return the loop of one reader.

        It runs until the reader is told to stop; by then another reader may have begun.
        """
        return Loop(self.store, tick=TICK, purpose="read events", at_most_every=AT_MOST_EVERY, with_commits=True)

    async def _read_new(self) -> float | None:
        """Read the events that are new.

        A reader that was told to stop must not add its events to those of the reader that followed.
        """
        since = self._since
        async with self.store.read() as session:
            tail = await newest_cursor(session) if since is None else self._tail
            events = [] if since is None else await read_events(session, tail, PAGE)
        if self._reader is not asyncio.current_task():
            return None
        await self._append(tail, events)
        return AT_ONCE if len(events) == PAGE else None

    async def _append(self, tail: Cursor, events: list[Event]) -> None:
        """Add events to the ring and wake the subscribers."""
        if self._since is None:
            self._since = self._tail = tail
        overflow = len(self._ring) + len(events) - RING_SIZE
        if overflow > 0:
            self._since = self._ring[overflow - 1].cursor
        self._ring.extend(events)
        if events:
            self._tail = events[-1].cursor
        async with self._new_events:
            self._new_events.notify_all()
