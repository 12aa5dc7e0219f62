"""How many runs may execute at once: a number, changed at run time, or found out by itself (`auto`).

`auto` grows while throughput grows with it and the share of failures does not, and halves when the system is
overloaded. It is a pure controller; the setting lives in the store.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackwright.store.session import Session
from rackwright.store.settings import read_setting

DEFAULT_CAP = 10
SMALLEST, LARGEST = 2, 1000
AUTO = "auto"


@dataclass
class AutoCap:
    """Climbs a throughput curve by measuring it in windows."""

    cap: float = DEFAULT_CAP
    window: float = 1.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)
    _settled: int = 0
    _failed: int = 0
    _best_rate: float = 0.0
    _last_rate: float = 0.0
    _last_failures: float = 0.0
    _direction: int = 1

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def limit(self) -> int:
        return round(min(max(self.cap, SMALLEST), LARGEST))

    def observe(self, settled: int, failed: int) -> None:
        """Count what ended; at the end of a window, decide."""
        self._settled += settled
        self._failed += failed
        now = self.clock()
        elapsed = now - self._since
        # A window needs enough ended runs to say anything about the rate.
        if elapsed >= self.window and self._settled >= self.limit:
            self._decide(self._settled / elapsed, self._failed / self._settled)
            self._since, self._settled, self._failed = now, 0, 0

    def _decide(self, rate: float, failures: float) -> None:
        if failures > self._last_failures + 0.1 or rate < self._last_rate * 0.7:
            self.cap, self._direction = max(SMALLEST, self.cap / 2), 1
        elif rate < self._last_rate * 1.02:
            # No gain: what was tried last was a step too far, so step the other way.
            self._direction = -self._direction
            self.cap = min(max(self.cap * (1.25 if self._direction > 0 else 0.85), SMALLEST), LARGEST)
        else:
            self.cap = min(max(self.cap * (1.5 if self._direction > 0 else 0.85), SMALLEST), LARGEST)
        self._last_rate, self._last_failures = rate, failures


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

    def observe(self, settled: int, failed: int) -> None:
        if self._known == AUTO:
            self.auto.observe(settled, failed)
