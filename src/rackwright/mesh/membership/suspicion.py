"""How long a suspect has to refute: Lifeguard's arithmetic, and the object that holds a running suspicion.

A suspicion starts long and every independent accuser shortens it, because the first accuser may be the slow member.
"""

import math


def suspicion_timeout(multiplier: int, members: int, interval: float) -> float:
    """Return the shortest suspicion. It grows with the logarithm of the cluster's size, like the time in which gossip
    reaches all."""
    return multiplier * max(1.0, math.log10(max(1, members))) * interval


def timeout_after(confirmations: int, needed: int, shortest: float, longest: float) -> float:
    """Return how long a suspicion lasts after so many confirmations.

    It falls from longest to shortest with the *logarithm* of the confirmations: the first ones count the most.
    """
    if needed < 1:
        return shortest
    fraction = math.log(confirmations + 1) / math.log(needed + 1)
    return max(shortest, longest - fraction * (longest - shortest))


def confirmations_needed(multiplier: int, members: int) -> int:
    """Return how many confirmations make a suspicion shortest; 0 where there are not enough other members to give them,
    besides suspect and accuser."""
    needed = multiplier - 2
    return needed if members - 2 >= needed else 0


class Suspicion:
    """The suspicion against one member: its accusers, its start and its deadline."""

    __slots__ = ("_accusers", "_longest", "_needed", "_shortest", "start")

    def __init__(self, accuser: str, start: float, needed: int, shortest: float, longest: float) -> None:
        self._accusers = {accuser}
        self._needed = needed
        self._shortest = shortest
        self._longest = longest
        self.start = start

    def confirm(self, accuser: str) -> bool:
        """Add an accuser; return whether it counts: if it is new, while more are needed. None is counted twice."""
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
