"""Comparison of whole member tables now and then: it finds what gossip missed, and reunites the halves of a partition.

Where memberlist sends the whole list, a digest of 64 buckets goes first, and only the entries that differ follow: in a
quiet cluster the load does not grow with the number of members. A peer's "dead" is taken as a suspicion, never as a
fact: it may be old, and the member itself may be able to refute.
"""

import math
from collections.abc import Callable, Iterable

from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_updates import Membership
from rackwright.mesh.membership.messages import (
    MAX_SYNC_ENTRIES,
    SYNC_BUCKETS,
    Alive,
    Dead,
    Suspect,
    SyncDigest,
    SyncState,
    encode_record,
)

_PAGE_BYTES = 56 * 1024
_SCALE_FROM = 32


def sync_scale(interval: float, members: int) -> float:
    """Return the interval of comparisons, scaled as memberlist does: above 32 members each doubling adds one
    interval."""
    if members <= _SCALE_FROM:
        return interval
    return interval * (math.ceil(math.log2(members) - math.log2(_SCALE_FROM)) + 1)


class Syncer:
    """Compares this member's table with those of others."""

    __slots__ = ("_answered", "_answered_since", "_membership")

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._answered = 0
        self._answered_since = 0.0

    def start(self) -> None:
        """Start comparing, at a random phase."""
        membership = self._membership
        scaled = sync_scale(membership.config.sync_interval, membership.table.live)
        membership.timers.at(membership.now + membership.rng.random() * scaled, self._tick)
        phase = membership.rng.random() * membership.config.reconnect_interval
        membership.timers.at(membership.now + phase, self._reconnect)

    def _tick(self) -> None:
        membership = self._membership
        if membership.leaving:
            return
        membership.reap()
        membership.timers.at(
            membership.now + sync_scale(membership.config.sync_interval, membership.table.live), self._tick
        )
        self._send_digest(membership.others_alive)

    def sync_now(self) -> None:
        """Compare now, and again every second until a member has answered: after a join or a pause."""
        if self._membership.synced:
            self._membership.synced = False
            self._retry_until_synced()

    def _retry_until_synced(self) -> None:
        membership = self._membership
        if membership.synced or membership.leaving:
            return
        membership.timers.at(membership.now + membership.config.sync_retry, self._retry_until_synced)
        if not self._send_digest(membership.others_live):
            self._send_digest(self._is_dead)

    def _reconnect(self) -> None:
        """Try a dead member again: about once an interval by all members together, not by each."""
        membership = self._membership
        if membership.leaving:
            return
        membership.timers.at(membership.now + membership.config.reconnect_interval, self._reconnect)
        gone = len(membership.table.gone)
        if gone and membership.rng.random() * max(1, membership.table.live - 1) < gone:
            self._send_digest(self._is_dead)

    def _is_dead(self, entry: Entry) -> bool:
        return entry.state is State.DEAD

    def _send_digest(self, fits: Callable[[Entry], bool]) -> bool:
        """Send our digests to a random member that fits; return whether there is one."""
        membership = self._membership
        chosen = membership.table.sample(1, membership.rng, fits)
        for entry in chosen:
            membership.send(entry.name, SyncDigest(membership.table.digests()), reliable=True)
        return bool(chosen)

    # -- messages ------------------------------------------------------------------------------------------------------

    def receive_digest(self, source: str, body: SyncDigest) -> None:
        """Answer digests with our entries in the buckets that differ.

        Always answered, if only by an empty page: the peer must know that it is done.
        """
        membership = self._membership
        if membership.now - self._answered_since >= 1.0:
            self._answered_since, self._answered = membership.now, 0
        self._answered += 1
        if self._answered > membership.config.syncs_answered_per_second:
            membership.counters.over_limit += 1
            return
        ours = membership.table.digests()
        differing = sum(1 << bucket for bucket in range(SYNC_BUCKETS) if ours[bucket] != body.digests[bucket])
        self._send_pages(source, differing, answer=True)

    def receive_state(self, source: str, body: SyncState) -> None:
        """Merge a page of a peer's table into ours, and send ours if the peer asks for it."""
        membership = self._membership
        for state, record in body.entries:
            self._merge(state, record, source)
        if not membership.synced:
            # Now that we know more than the member we joined by, all shall know of us.
            membership.synced = True
            membership.broadcast(Alive(membership.me))
        if body.answer and body.buckets:
            self._send_pages(source, body.buckets, answer=False)

    def _send_pages(self, to: str, buckets: int, answer: bool) -> None:
        pages = _pages(self._membership.table.in_buckets(buckets) if buckets else ())
        for number, page in enumerate(pages, start=1):
            is_last = number == len(pages)
            self._membership.send(to, SyncState(buckets, answer and is_last, tuple(page)), reliable=True)

    def _merge(self, state: State, record: MemberRecord, source: str) -> None:
        membership = self._membership
        if state is State.ALIVE:
            membership.apply(Alive(record), source)
        elif state is State.LEFT:
            membership.apply(Dead(record.name, record.incarnation, record.name), source)
        else:
            accuser = membership.me.name if record.name != membership.me.name else source
            membership.apply(Suspect(record.name, record.incarnation, accuser), source)


def _pages(entries: Iterable[Entry]) -> list[list[tuple[State, MemberRecord]]]:
    """Return the entries in pages that fit a message each; at least one page."""
    pages: list[list[tuple[State, MemberRecord]]] = [[]]
    room = _PAGE_BYTES
    for entry in entries:
        size = 1 + len(encode_record(entry.record))
        if size > room or len(pages[-1]) == MAX_SYNC_ENTRIES:
            pages.append([])
            room = _PAGE_BYTES
        pages[-1].append((entry.state, entry.record))
        room -= size
    return pages
