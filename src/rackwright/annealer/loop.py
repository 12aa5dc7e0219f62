"""`Loop`, the one loop of the control plane: wake, look, act, back off, stop.

All background work is an instance of `Loop`: it names what wakes it and how often it looks, and has a `reconcile`
function that looks at the state of things and does what is to be done now. Defects are not handled here: any error but
trouble of the database goes through to `supervision.py`, which starts the part again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

from rackwright.store.db.session import DATABASE_TROUBLE, UNREACHABLE, first_line
from rackwright.store.store import Store

log = logging.getLogger(__name__)

BACK_OFF = 0.5
"""Seconds after which a loop that has no tick tries a database again that did not answer."""
AT_ONCE = 0.0
"""A `reconcile` returns this if there may be more to do as soon as it looks again."""

Reconcile = Callable[[], Awaitable[float | None]]
"""A function that looks and acts. It returns the seconds until the next look, unless something wakes the loop before;
None: the tick."""


class Loop:
    """Calls a `reconcile` again and again, until it is stopped or cancelled.

    A wake while `reconcile` is at work is not lost: it is called once more. A lost notification costs at most one tick.
    """

    def __init__(
        self,
        store: Store | None,
        channels: Sequence[str] = (),
        tick: float | None = None,
        *,
        purpose: str,
        back_off: float | None = None,
        at_most_every: float = 0.0,
        at_start: bool = True,
        with_commits: bool = False,
        on_notice: Callable[[str, str], None] | None = None,
    ) -> None:
        """Prepare a loop; `run` starts it.

        `channels`: PostgreSQL's notifications on them wake it. `tick`: seconds between two looks when nothing wakes
        it; None: it looks only when something does. `purpose`: what it is there to do, for logs that say that it
        cannot ("advance installs"). `back_off`: seconds until a database that did not answer is tried again; None: the
        tick. `at_most_every`: seconds between two looks, however often it is woken. `at_start`: whether it
        looks when it starts, or a tick later. `with_commits`: whether each commit of this process wakes it.
        `on_notice`: told of each notification, with its channel and payload, before it wakes the loop.
        """
        self._store = store
        self._channels = tuple(channels)
        self._tick = tick
        self._back_off = next((seconds for seconds in (back_off, tick) if seconds is not None), BACK_OFF)
        self._at_most_every = at_most_every
        self._at_start = at_start
        self._with_commits = with_commits
        self._on_notice = on_notice
        self._look_trouble = _TroubleLog(purpose)
        self._listen_trouble = _TroubleLog(f"listen for {', '.join(self._channels)}")
        self._wake = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def wake(self) -> None:
        """Have it look as soon as it can: there may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` when the look that is under way is over. A look is never interrupted."""
        if self._with_commits and self._store is not None:
            self._store.watchers.discard(self.wake)
        self._stopped.set()
        self._wake.set()

    async def run(self, reconcile: Reconcile) -> None:
        """Call `reconcile` until stopped or cancelled. An error other than trouble of the database ends the loop."""
        with self._woken_by_commits():
            if not self._channels:
                await self._look_until_stopped(reconcile)
                return
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(self._listen())
                await self._look_until_stopped(reconcile)
                listener.cancel()

    async def _look_until_stopped(self, reconcile: Reconcile) -> None:
        if not self._at_start:
            await self._wait(self._tick)
        while not self.stopping:
            self._wake.clear()  # before the look: a wake during it may be about something it did not see
            try:
                wait = await reconcile()
            except DATABASE_TROUBLE as error:
                _raise_if_cancelled(error)
                self._look_trouble.log_once(error)
                await self._rest(self._back_off)
                continue
            self._look_trouble.is_over()
            if self._at_most_every:
                await self._rest(self._at_most_every)
            await self._wait(self._tick if wait is None else wait)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a wake, at most so long."""
        if seconds is None:
            await self._wake.wait()
        elif seconds > 0:
            await _happens_within(self._wake, seconds)

    async def _rest(self, seconds: float) -> None:
        """Wait so long, whether the loop is woken or not: many wakes must not make it hurry. Only `stop` ends this."""
        await _happens_within(self._stopped, seconds)

    async def _listen(self) -> None:
        """Wake the loop on each notification, for ever; on a new connection if the last one broke."""
        assert self._store is not None, "a loop that listens has a store"
        while True:
            try:
                async with await self._store.listen(*self._channels) as notices:
                    self._listen_trouble.is_over()
                    self.wake()  # something may have happened before we listened
                    async for channel, payload in notices:
                        if self._on_notice is not None:
                            self._on_notice(channel, payload)
                        self.wake()
            except DATABASE_TROUBLE as error:
                _raise_if_cancelled(error)
                self._listen_trouble.log_once(error)
            await asyncio.sleep(self._back_off)

    @contextlib.contextmanager
    def _woken_by_commits(self) -> Iterator[None]:
        if not self._with_commits:
            yield
            return
        assert self._store is not None, "a loop that is woken by commits has a store"
        self._store.watchers.add(self.wake)
        try:
            yield
        finally:
            self._store.watchers.discard(self.wake)


class _TroubleLog:
    """Logs trouble with one purpose once, for as long as it lasts."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._logged = ""

    def log_once(self, error: Exception) -> None:
        """Log an error of the database, unless it is the one that was logged last."""
        text = first_line(error)
        if text == self._logged:
            return
        self._logged = text
        if isinstance(error, UNREACHABLE):
            log.warning("cannot %s, the database does not answer; trying again: %s", self._purpose, text)
        else:
            log.error("cannot %s, the database refuses it; trying again: %s", self._purpose, text)

    def is_over(self) -> None:
        """Log that the purpose works again, if it was logged that it does not."""
        if self._logged:
            self._logged = ""
            log.info("can %s again", self._purpose)


def _raise_if_cancelled(error: Exception) -> None:
    """Raise CancelledError if this task is cancelled: then the error comes of that, and a loop that took it for a
    database that does not answer would go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


async def _happens_within(event: asyncio.Event, seconds: float) -> None:
    """Return once the event is set, at the latest after so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
