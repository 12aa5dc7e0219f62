"""How long a suspect has to refute: Lifeguard's arithmetic, and the one object that holds a running suspicion.

A suspicion starts long and every independent accuser shortens it, because the one who accuses first may be the slow
one.
"""

import math


def suspicion_timeout(multiplier: int, members: int, interval: float) -> float:
    """The shortest suspicion. It grows with the logarithm of the cluster, as the time gossip needs to reach all
    does.
    """
    return multiplier * max(1.0, math.log10(max(1, members))) * interval


def timeout_after(confirmations: int, needed: int, shortest: float, longest: float) -> float:
    """Falls from longest to shortest with the *logarithm* of the confirmations: the first ones tell the most."""
    if needed < 1:
        return shortest
    fraction = math.log(confirmations + 1) / math.log(needed + 1)
    return max(shortest, longest - fraction * (longest - shortest))


def confirmations_needed(multiplier: int, members: int) -> int:
    """None, where there are not enough others (besides suspect and accuser) to give them."""
    needed = multiplier - 2
    return needed if members - 2 >= needed else 0


class Suspicion:
    """One member under suspicion: who accuses, since when, until when."""

    __slots__ = ("_accusers", "_longest", "_needed", "_shortest", "start")

    def __init__(self, accuser: str, start: float, needed: int, shortest: float, longest: float) -> None:
        self._accusers = {accuser}
        self._needed = needed
        self._shortest = shortest
        self._longest = longest
        self.start = start

    def confirm(self, accuser: str) -> bool:
        """Whether this accuser counts: a new one, while more are needed. One voice is never counted twice."""
        if accuser in self._accusers or len(self._accusers) > self._needed:
            return False
        self._accusers.add(accuser)
        return True

    @property
    def confirmations(self) -> int:
        return len(self._accusers) - 1

    @property
    def deadline(self) -> float:
        return self.start + timeout_after(self.confirmations, self._needed, self._shortest, self._longest)
