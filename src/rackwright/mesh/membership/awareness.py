"""Lifeguard's local health score: how much this member should doubt itself before it doubts others."""


class Awareness:
    """The score of this member: zero is healthy.

    Each point stretches the probe interval once more, so that a slow member accuses slowly.
    """

    __slots__ = ("_limit", "score")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    def add(self, delta: int) -> None:
        self.score = min(max(self.score + delta, 0), self._limit - 1)

    def scale(self, seconds: float) -> float:
        """Return an interval, stretched by the score."""
        return seconds * (self.score + 1)


def probe_delta(answered: bool, nacks_expected: int, nacks: int) -> int:
    """Return what one probe adds to this member's own score.

    An answer speaks for this member. No answer, but relays that report they had none either: the target is to blame.
    Relays that stayed silent too: probably this member itself does not receive.
    """
    if answered:
        return -1
    if nacks_expected:
        return max(0, nacks_expected - nacks)
    return 1
