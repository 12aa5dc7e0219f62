"""Warnings of what strangers decide how often it happens: logged at once, and then rarely."""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class RareWarning:
    """A warning that is logged at once, and after that at most once a minute, with how often it was due."""

    EVERY = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._next = -self.EVERY

    def __call__(self, text: str) -> None:
        self._count += 1
        if self._clock() >= self._next:
            self._next = self._clock() + self.EVERY
            count, self._count = self._count, 0
            log.warning("%s Said once a minute; this often since: %d.", text, count)
