"""The tail of the outbox, read once for all who watch it: one reader a process, however many subscribers.

The last events are kept in a ring. A subscriber is nothing but a cursor, so a slow one costs no memory: what has left
the ring it reads from the database like one that comes back after a while. The reader wakes when this process commits
and looks every `TICK` seconds for what others did. There is no NOTIFY: it would serialise the commits of all writers.
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

RING = 10_000
STREAMS = 64
"""At once, a user."""
PAGE = 1000
TICK = 0.5
AT_MOST_EVERY = 0.05
"""Seconds between two looks, however busy the system is."""


class Feed:
    """What happened last, as events become readable. It reads only while somebody is subscribed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.closing = False
        self._ring: deque[Event] = deque(maxlen=RING)
        self._since: Cursor | None = None
        """The ring holds all that came after this; None: nobody reads."""
        self._tail = Cursor()
        self._subscribers = 0
        self._streams: Counter[str] = Counter()
        self._reader: asyncio.Task[None] | None = None
        self._reading = self._new_loop()
        """What the reader runs."""
        self._ending: set[asyncio.Task[None]] = set()
        """Readers that were let go and have a last question under way."""
        self._news = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def subscribed(self) -> AsyncIterator[None]:
        """While this is open, `after` and `changed` work."""
        self._subscribers += 1
        try:
            if self._reader is None:
                self._reading = self._new_loop()
                self._reader = asyncio.create_task(self._reading.run(self._look), name="event feed")
            yield
        finally:
            self._subscribers -= 1
            if self._subscribers == 0:
                await self._let_go()

    @contextlib.asynccontextmanager
    async def stream_of(self, user: str) -> AsyncIterator[None]:
        """`subscribed`, and counted."""
        with self.place_of(user):
            async with self.subscribed():
                yield

    @contextlib.contextmanager
    def place_of(self, user: str) -> Iterator[None]:
        """Count an answer that stays open: a stream, or a page that waits for its first event."""
        self._streams[user] += 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]

    def check_place(self, user: str) -> None:
        """Refuse one more answer that stays open to somebody who has `STREAMS`."""
        if self._streams[user] >= STREAMS:
            raise TooMany(f"You have {STREAMS} event streams open already. Close some of them.")

    async def close(self) -> None:
        """Everybody who waits is let go; streams end."""
        self.closing = True
        async with self._news:
            self._news.notify_all()

    async def rested(self) -> None:
        """Once nothing is asked of the database any more; nobody is subscribed."""
        if self._ending:
            await asyncio.wait(self._ending)

    async def after(self, cursor: Cursor) -> tuple[list[Event], Cursor]:
        """Some events after the cursor, and the place up to which there are no others."""
        if self._since is not None and cursor >= self._since:
            ring = self._ring
            start = bisect.bisect_right(ring, cursor, key=lambda event: event.cursor)
            found = [ring[number] for number in range(start, min(start + PAGE, len(ring)))]
            return found, found[-1].cursor if found else max(cursor, self._tail)
        tail = self._tail
        async with self.store.read() as session:
            await check_cursor_kept(session, cursor)
            found = await read_events(session, cursor, PAGE)
        return found, found[-1].cursor if found else max(cursor, tail)

    async def changed(self, cursor: Cursor, timeout: float) -> None:
        """Until there may be something after the cursor, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._news:
                await self._news.wait_for(lambda: self._tail > cursor or self.closing)

    async def _let_go(self) -> None:
        """The reader ends by itself, between two questions: to break one off would cost its connection."""
        reader, self._reader, self._since = self._reader, None, None
        assert reader is not None
        self._ring.clear()
        self._ending.add(reader)
        reader.add_done_callback(self._ending.discard)
        self._reading.stop()
        await asyncio.wait({reader})  # a stream that is broken off here leaves the reader to end alone

    def _new_loop(self) -> Loop:
        """What one reader runs until it is let go; by then another may have begun."""
        return Loop(self.store, tick=TICK, purpose="read events", at_most_every=AT_MOST_EVERY, with_commits=True)

    async def _look(self) -> float | None:
        """Take in what is new. A reader that was let go must not meddle with the findings of the one that followed."""
        since = self._since
        async with self.store.read() as session:
            tail = await newest_cursor(session) if since is None else self._tail
            found = [] if since is None else await read_events(session, tail, PAGE)
        if self._reader is not asyncio.current_task():
            return None
        await self._append(tail, found)
        return AT_ONCE if len(found) == PAGE else None

    async def _append(self, tail: Cursor, found: list[Event]) -> None:
        if self._since is None:
            self._since = self._tail = tail
        overflow = len(self._ring) + len(found) - RING
        if overflow > 0:
            self._since = self._ring[overflow - 1].cursor
        self._ring.extend(found)
        if found:
            self._tail = found[-1].cursor
        async with self._news:
            self._news.notify_all()
