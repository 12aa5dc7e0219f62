"""The gossip queue: the newest update about each member, sent on a bounded number of times, least-sent first."""

import math
from collections.abc import Iterator

from rackwright.mesh.membership.messages import MAX_UPDATES, Update

_MAX_TAKEN = MAX_UPDATES - 2  # a message adds at most two of its own


def retransmit_limit(multiplier: int, members: int) -> int:
    """Return how often an update is sent: often enough to reach all members with high probability.

    An update doubles its reach with every round.
    """
    return multiplier * math.ceil(math.log10(members + 1))


class BroadcastQueue:
    """The queue: a dictionary for each number of times sent, so that taking the next few updates needs no sorting."""

    __slots__ = ("_limit", "_tier_of", "_tiers")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tiers: list[dict[str, Update]] = []
        self._tier_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._tier_of)

    def add(self, update: Update) -> None:
        """Add an update; it replaces an older one about the same member, sent or not."""
        self.discard(update.name)
        if len(self._tier_of) >= self._limit:
            self._drop_most_sent()
        self._insert(update, 0)

    def discard(self, name: str) -> None:
        tier = self._tier_of.pop(name, None)
        if tier is not None:
            del self._tiers[tier][name]

    def take(self, budget: int, transmits: int) -> tuple[Update, ...]:
        """Return the next updates that fit `budget` bytes, but at least one, whatever its size.

        Each is returned `transmits` times in all.
        """
        if not self._tier_of:
            return ()
        chosen: list[tuple[Update, int]] = []
        for update, sent in self._least_sent_first():
            size = len(update.wire)
            if chosen and (size > budget or len(chosen) == _MAX_TAKEN):
                break
            budget -= size
            chosen.append((update, sent))
        for update, sent in chosen:
            self.discard(update.name)
            if sent + 1 < transmits:
                self._insert(update, sent + 1)
        return tuple(update for update, _ in chosen)

    def clear(self) -> None:
        self._tiers.clear()
        self._tier_of.clear()

    def _least_sent_first(self) -> Iterator[tuple[Update, int]]:
        """Yield the updates with the number of times they were sent; of those sent equally often, the newest first."""
        for sent, tier in enumerate(self._tiers):
            for update in reversed(tier.values()):
                yield update, sent

    def _insert(self, update: Update, tier: int) -> None:
        while len(self._tiers) <= tier:
            self._tiers.append({})
        self._tiers[tier][update.name] = update
        self._tier_of[update.name] = tier

    def _drop_most_sent(self) -> None:
        for tier in reversed(self._tiers):
            if tier:
                self.discard(next(iter(tier)))
                return
