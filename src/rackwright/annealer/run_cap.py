"""How many runs may execute at once: a number, changed at run time, or found out by itself (`auto`).

`auto` tries a step and keeps it if more runs ended a second than just before it; else it goes back, measures there once
more and tries a smaller step the other way. So every step is judged beside a rate that was measured next to it, and a
system that becomes slower or faster by itself leads it nowhere. It halves when the share of failures grows. It is a
pure controller; the setting lives in the store.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackwright.store.db.session import Session
from rackwright.store.settings import read_setting

DEFAULT_CAP = 10
SMALLEST, LARGEST = 2, 1000
AUTO = "auto"

FIRST_STEP, SMALLEST_STEP = 0.5, 0.12
"""Parts of the cap by which it is changed, at first and once the best is near."""
LONGER, SHORTER = 1.5, 0.5
"""What becomes of the step when it brought something, and when it did not."""
GAIN = 1.03
"""Of the rate before: what is more than chance."""
MORE_FAILURES = 0.1
"""Of all that end: how many more than before are taken for overload."""


@dataclass
class AutoCap:
    """Climbs a throughput curve by measuring it in windows."""

    cap: float = DEFAULT_CAP
    window: float = 1.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)
    _settled: int = 0
    _failed: int = 0
    _last_rate: float = 0.0
    _last_failures: float = 0.0
    _stands: float | None = None
    """Where a step began that is being tried; None: nothing is tried, the rate is measured where it stands."""
    _direction: int = 1
    _step: float = FIRST_STEP
    _resting: bool = False

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def limit(self) -> int:
        return round(min(max(self.cap, SMALLEST), LARGEST))

    def observe(self, settled: int, failed: int, *, busy: bool = True) -> None:
        """Count what ended; at the end of a window, decide. `busy`: something runs now; while nothing does, no time
        passes here, or having nothing to do would look like overload."""
        now = self.clock()
        if self._resting:
            self._since, self._settled, self._failed = now, 0, 0
        self._resting = not busy
        self._settled += settled
        self._failed += failed
        elapsed = now - self._since
        # A window needs enough ended runs to say anything about the rate.
        if elapsed >= self.window and self._settled >= self.limit:
            self._decide(self._settled / elapsed, self._failed / self._settled)
            self._since, self._settled, self._failed = now, 0, 0

    def _decide(self, rate: float, failures: float) -> None:
        if failures > self._last_failures + MORE_FAILURES:
            self._direction, self._stands = 1, None
            self._shorten()
            self.cap = max(SMALLEST, self.cap / 2)
        elif self._stands is not None and rate < self._last_rate * GAIN:
            self.cap, self._stands = self._stands, None
            self._direction = -self._direction
            self._shorten()
        else:
            if self._stands is not None:
                self._step = min(self._step * LONGER, FIRST_STEP)
            self._stands = self.cap
            self._try()
        self._last_rate, self._last_failures = rate, failures

    def _try(self) -> None:
        # Up and down undo each other; less than one run is no step at all.
        up = max(self.cap * self._step, 1.0)
        down = max(self.cap * self._step / (1 + self._step), 1.0)
        self.cap = min(max(self.cap + (up if self._direction > 0 else -down), SMALLEST), LARGEST)

    def _shorten(self) -> None:
        self._step = max(self._step * SHORTER, SMALLEST_STEP)


class CapControl:
    """The cap in force."""

    def __init__(self) -> None:
        self.auto = AutoCap()
        self._known: int | str = DEFAULT_CAP
        self._read_at = -1.0

    async def limit(self, session: Session) -> int:
        """Read the setting now and then; it may change at any time, by any server."""
        now = time.monotonic()
        if now - self._read_at > 0.5 or self._read_at < 0:
            self._known = await read_setting(session, "cap", DEFAULT_CAP)
            self._read_at = now
        return self.auto.limit if self._known == AUTO else int(self._known)

    def observe(self, settled: int, failed: int, *, busy: bool) -> None:
        if self._known == AUTO:
            self.auto.observe(settled, failed, busy=busy)
