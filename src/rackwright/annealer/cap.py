"""How many runs may execute at once: a number, changed at run time, or found out by itself (`auto`).

`auto` grows while throughput grows with it and the share of failures does not, halves when the system is overloaded,
and feels its way in ever smaller steps where more brings nothing. It is a pure controller; the setting lives in the
store.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackwright.store.session import Session
from rackwright.store.settings import read_setting

DEFAULT_CAP = 10
SMALLEST, LARGEST = 2, 1000
AUTO = "auto"

FIRST_STEP, SMALLEST_STEP = 0.5, 0.06
"""Parts of the cap by which it is changed, at first and once the best is near."""
LONGER, SHORTER = 1.25, 0.5
"""What becomes of the step when it brought something, and when it did not."""
GAIN, COLLAPSE = 1.02, 0.7
"""Of the rate before: what counts as a gain, and what as overload."""


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
        if failures > self._last_failures + 0.1 or rate < self._last_rate * COLLAPSE:
            self._shorten()
            self._direction = 1
            self.cap = max(SMALLEST, self.cap / 2)
            # Half as many do less: that is no second collapse, so the next rate is compared with nothing.
            self._last_rate, self._last_failures = 0.0, failures
            return
        if rate < self._last_rate * GAIN:
            # What was tried last was a step too far, so step the other way.
            self._shorten()
            self._direction = -self._direction
        else:
            self._step = min(self._step * LONGER, FIRST_STEP)
        # Up and down undo each other; less than one run is no step at all.
        up = max(self.cap * self._step, 1.0)
        down = max(self.cap * self._step / (1 + self._step), 1.0)
        self.cap = min(max(self.cap + (up if self._direction > 0 else -down), SMALLEST), LARGEST)
        self._last_rate, self._last_failures = rate, failures

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
