"""Lifeguard's local health score: how much this member should doubt itself before it doubts others."""


class Awareness:
    """Zero is healthy. Each point stretches our probe interval once more, so that a slow member accuses slowly."""

    __slots__ = ("_limit", "score")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    def add(self, delta: int) -> None:
        self.score = min(max(self.score + delta, 0), self._limit - 1)

    def scale(self, seconds: float) -> float:
        return seconds * (self.score + 1)


def probe_delta(answered: bool, nacks_expected: int, nacks: int) -> int:
    """What one probe says about ourselves.

    An answer speaks for us. No answer, but relays that told us they had none either: the target is to blame, not we.
    Relays that stayed silent too: probably it is we who do not hear.
    """
    if answered:
        return -1
    if nacks_expected:
        return max(0, nacks_expected - nacks)
    return 1
