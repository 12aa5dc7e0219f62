"""The cap, how many runs may execute at once: a number that can change at run time, or `auto`, which finds the best.

`auto` tries a step and keeps it if more runs ended a second than just before; else it goes back, measures there once
more and tries a smaller step the other way. So every step is compared with a rate that was measured next to it, and a
system that becomes slower or faster by itself does not mislead it. It halves the cap when the share of failures grows.
It is a pure controller; the setting lives in the store.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackwright.store.db.session import Session
from rackwright.store.settings import read_setting

DEFAULT_CAP = 10
MIN_CAP, MAX_CAP = 2, 1000
AUTO = "auto"

FIRST_STEP, SMALLEST_STEP = 0.5, 0.12
"""The parts of the cap by which it is changed, at first and once it is near the best."""
STEP_GROWTH, STEP_SHRINKAGE = 1.5, 0.5
"""The factor for the next step after one that raised the rate, and after one that did not."""
GAIN = 1.03
"""A rate that is so many times the one before is more than chance."""
MORE_FAILURES = 0.1
"""If the share of failed runs grows by more than this, it is taken for overload."""


@dataclass
class AutoCap:
    """A controller that finds the cap with the highest throughput by measuring it in windows of time."""

    cap: float = DEFAULT_CAP
    window: float = 1.0
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)
    _settled: int = 0
    _failed: int = 0
    _last_rate: float = 0.0
    _last_failures: float = 0.0
    _cap_before_step: float | None = None
    """The cap before the step that is being tried; None: no step is tried, the rate is measured at the present cap."""
    _direction: int = 1
    _step: float = FIRST_STEP
    _was_idle: bool = False

    def __post_init__(self) -> None:
        self._since = self.clock()

    @property
    def limit(self) -> int:
        return round(min(max(self.cap, MIN_CAP), MAX_CAP))

    def observe(self, settled: int, failed: int, *, busy: bool = True) -> None:
        """Count runs that ended; at the end of a window, decide about the cap.

        `busy`: something runs now. While nothing runs, no time passes here: having nothing to do would look like
        overload.
        """
        now = self.clock()
        if self._was_idle:
            self._since, self._settled, self._failed = now, 0, 0
        self._was_idle = not busy
        self._settled += settled
        self._failed += failed
        elapsed = now - self._since
        # A window needs enough ended runs for a rate that means something.
        if elapsed >= self.window and self._settled >= self.limit:
            self._decide(self._settled / elapsed, self._failed / self._settled)
            self._since, self._settled, self._failed = now, 0, 0

    def _decide(self, rate: float, failures: float) -> None:
        if failures > self._last_failures + MORE_FAILURES:
            self._direction, self._cap_before_step = 1, None
            self._shrink_step()
            self.cap = max(MIN_CAP, self.cap / 2)
        elif self._cap_before_step is not None and rate < self._last_rate * GAIN:
            self.cap, self._cap_before_step = self._cap_before_step, None
            self._direction = -self._direction
            self._shrink_step()
        else:
            if self._cap_before_step is not None:
                self._step = min(self._step * STEP_GROWTH, FIRST_STEP)
            self._cap_before_step = self.cap
            self._take_step()
        self._last_rate, self._last_failures = rate, failures

    def _take_step(self) -> None:
        # A step up and one down undo each other; less than one run is no step at all.
        up = max(self.cap * self._step, 1.0)
        down = max(self.cap * self._step / (1 + self._step), 1.0)
        self.cap = min(max(self.cap + (up if self._direction > 0 else -down), MIN_CAP), MAX_CAP)

    def _shrink_step(self) -> None:
        self._step = max(self._step * STEP_SHRINKAGE, SMALLEST_STEP)


class CapControl:
    """The cap that holds now: that of the setting, or that of `AutoCap`."""

    def __init__(self) -> None:
        self.auto = AutoCap()
        self._setting: int | str = DEFAULT_CAP
        self._read_at = -1.0

    async def limit(self, session: Session) -> int:
        """Return the cap. The setting is read now and then, as any server may change it at any time."""
        now = time.monotonic()
        if now - self._read_at > 0.5 or self._read_at < 0:
            self._setting = await read_setting(session, "cap", DEFAULT_CAP)
            self._read_at = now
        return self.auto.limit if self._setting == AUTO else int(self._setting)

    def observe(self, settled: int, failed: int, *, busy: bool) -> None:
        if self._setting == AUTO:
            self.auto.observe(settled, failed, busy=busy)
