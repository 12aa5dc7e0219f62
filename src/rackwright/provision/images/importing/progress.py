"""Saying how far long work is, every tenth of it."""

from rackwright.provision.images.disk_space import show_size
from rackwright.provision.images.packages import Say


class Progress:
    """Says how much of so many bytes is done."""

    def __init__(self, what: str, total: int, say: Say) -> None:
        self._what, self._total, self._say = what, max(total, 1), say
        self._told = 0

    def reach(self, done: int) -> None:
        """Say where it is, if it is a tenth further than when that was said last."""
        tenth = min(10 * done // self._total, 10)
        if tenth > self._told:
            self._told = tenth
            self._say(f"{self._what}: {10 * tenth} % of {show_size(self._total)}")
