"""The member table: the known members with their states, the order in which they are probed, and digests of the table.

The rules of changes are in `member_updates.py`.

Ten thousand simulated tables of ten thousand members each must fit in memory, so a table may stand on a `SharedBase`
that all of them share and hold only what differs. A real agent's base is empty.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator

from rackwright.mesh.membership.member import LIVE, Entry, State
from rackwright.mesh.membership.messages import SYNC_BUCKETS


def bucket_of(name: str) -> int:
    return hashlib.blake2b(name.encode(), digest_size=1).digest()[0] % SYNC_BUCKETS


def entry_digest(entry: Entry) -> int:
    """Return the digest of an entry: of its name and incarnation, or 0 if it is not alive.

    The dead count nothing: tables forget them at different times and still agree.
    """
    if entry.state not in LIVE:
        return 0
    text = f"{entry.name} {entry.incarnation}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


class SharedBase:
    """A list of entries that many tables start from. Never changed."""

    __slots__ = ("buckets", "digests", "entries", "gone", "live", "names")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.names = tuple(self.entries)
        self.gone = {entry.name: None for entry in self.entries.values() if entry.state not in LIVE}
        self.live = len(self.entries) - len(self.gone)
        self.digests = [0] * SYNC_BUCKETS
        self.buckets: list[list[str]] = [[] for _ in range(SYNC_BUCKETS)]
        for entry in self.entries.values():
            bucket = bucket_of(entry.name)
            self.digests[bucket] ^= entry_digest(entry)
            self.buckets[bucket].append(entry.name)


_EMPTY = SharedBase()


class MemberTable:
    """The table of one member."""

    __slots__ = ("_added", "_base", "_changed", "_digests", "_order_at", "_order_swaps", "gone", "live")

    def __init__(self, base: SharedBase = _EMPTY) -> None:
        self._base = base
        self._changed: dict[str, Entry | None] = {}
        self._added: list[str] = []  # names beyond the base; a dropped one stays until the probe round ends
        self._digests = list(base.digests)
        self._order_at = 0
        self._order_swaps: dict[int, int] = {}
        self.live = base.live
        self.gone: dict[str, None] = dict(base.gone)

    def get(self, name: str) -> Entry | None:
        if name in self._changed:
            return self._changed[name]
        return self._base.entries.get(name)

    def __len__(self) -> int:
        return self.live + len(self.gone)

    def __iter__(self) -> Iterator[Entry]:
        for name in self._base.names:
            entry = self.get(name)
            if entry is not None:
                yield entry
        for name in dict.fromkeys(self._added):
            entry = self._changed.get(name)
            if entry is not None:
                yield entry

    def put(self, entry: Entry) -> None:
        """Add or replace the entry of a member."""
        before = self.get(entry.name)
        self._update_counts(before, entry)
        if before is None and entry.name not in self._base.entries and entry.name not in self._changed:
            self._added.append(entry.name)
        self._changed[entry.name] = entry

    def drop(self, name: str) -> None:
        """Forget a member."""
        before = self.get(name)
        if before is not None:
            self._update_counts(before, None)
            self._changed[name] = None

    def _update_counts(self, before: Entry | None, after: Entry | None) -> None:
        """Update digests and counts for an entry that is replaced, added (no `before`) or dropped (no `after`)."""
        name = after.name if after is not None else before.name if before is not None else ""
        bucket = bucket_of(name)
        for entry, step in ((before, -1), (after, 1)):
            if entry is None:
                continue
            self._digests[bucket] ^= entry_digest(entry)
            if entry.state in LIVE:
                self.live += step
            elif step < 0:
                del self.gone[name]
            else:
                self.gone[name] = None

    # -- digests -------------------------------------------------------------------------------------------------------

    def digests(self) -> tuple[int, ...]:
        """Return the digest of each bucket."""
        return tuple(self._digests)

    def in_buckets(self, mask: int) -> Iterator[Entry]:
        """Yield the entries in the buckets whose bits are set in `mask`."""
        for bucket in range(SYNC_BUCKETS):
            if mask >> bucket & 1:
                for name in self._base.buckets[bucket]:
                    entry = self.get(name)
                    if entry is not None:
                        yield entry
        for name in self._added:
            entry = self._changed.get(name)
            if entry is not None and mask >> bucket_of(name) & 1:
                yield entry

    # -- choosing ------------------------------------------------------------------------------------------------------

    def next_in_round(self, rng: random.Random) -> str | None:
        """Return the next name of a shuffled round; None where a round ends.

        A Fisher-Yates shuffle done one step at a time: a member that joins in mid-round is drawn in what is left of
        it, and a table of 10,000 costs nothing to shuffle when only a few are drawn.
        """
        size = len(self._base.names) + len(self._added)
        at = self._order_at
        if at >= size:
            self._end_round()
            return None
        chosen = at + int(rng.random() * (size - at))
        index = self._order_swaps.pop(chosen, chosen)
        if chosen != at:
            self._order_swaps[chosen] = self._order_swaps.pop(at, at)
        self._order_at = at + 1
        return self._name_at(index)

    def _end_round(self) -> None:
        self._order_at = 0
        self._order_swaps.clear()
        dropped = {name for name in self._added if self._changed.get(name) is None}
        if dropped:
            self._added = [name for name in self._added if name not in dropped]
            for name in dropped:
                self._changed.pop(name, None)

    def sample(self, count: int, rng: random.Random, fits: Callable[[Entry], bool]) -> list[Entry]:
        """Return up to `count` different members that fit, each as likely as another."""
        size = len(self._base.names) + len(self._added)
        chosen: dict[str, Entry] = {}
        if size > 64:
            for _ in range(3 * count + 8):
                entry = self.get(self._name_at(int(rng.random() * size)))
                if entry is not None and entry.name not in chosen and fits(entry):
                    chosen[entry.name] = entry
                    if len(chosen) == count:
                        return list(chosen.values())
        # Small, or mostly unfit: look at all of them.
        fitting = [entry for entry in self if fits(entry)]
        return fitting if len(fitting) <= count else rng.sample(fitting, count)

    def oldest_gone(self) -> Entry | None:
        """Return the entry that is dead, or has left, for longest."""
        # `gone` is in the order in which they went. A rogue member may cause a thousand such calls by one message.
        return self.get(next(iter(self.gone))) if self.gone else None

    def _name_at(self, index: int) -> str:
        base = self._base.names
        return base[index] if index < len(base) else self._added[index - len(base)]


def is_alive(entry: Entry) -> bool:
    return entry.state is State.ALIVE
