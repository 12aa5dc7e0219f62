"""The timers of the membership machine, in its own time.

A timer is never cancelled: the handler checks whether it still matters.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

Handler = Callable[..., None]


class Timers:
    """Calls handlers at their times."""

    __slots__ = ("_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handler, tuple[Any, ...]]] = []
        self._serial = itertools.count()

    def at(self, when: float, handler: Handler, *arguments: object) -> None:
        heapq.heappush(self._heap, (when, next(self._serial), handler, arguments))

    @property
    def next(self) -> float:
        """The time of the next timer; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def __len__(self) -> int:
        return len(self._heap)

    def run(self, now: float) -> None:
        """Call the handlers that are due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, handler, arguments = heapq.heappop(heap)
            handler(*arguments)

    def delay(self, seconds: float) -> None:
        """Put off all timers alike, as if the lost seconds had not passed."""
        self._heap = [(when + seconds, serial, handler, arguments) for when, serial, handler, arguments in self._heap]
