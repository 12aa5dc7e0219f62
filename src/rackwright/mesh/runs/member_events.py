"""Publishes the cluster's events about members and their software, each exactly once however many servers observe it.

Every server observes a death; the holder of the run monitor's lock publishes it. What was last published about each
member is stored in the datastore, and an event is written in one transaction with that record, under the condition that
the record is unchanged and the lock is still held. So a holder that ends in the middle, or is slow, publishes nothing
twice and misses nothing: the next holder compares what it observes with what was published. The rules for which events
to publish are `mesh/health/member_event_rules.py`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackwright.mesh.datastore.etcd_client import delete_op, get_op, put_op, unchanged
from rackwright.mesh.health.member_event_rules import (
    NO_REPORT,
    REMOVED,
    LastReport,
    MemberEvent,
    ObservedMember,
    events_since,
    is_long_gone,
    is_settled,
    observe_member,
    read_last_report,
)
from rackwright.mesh.membership.member import Entry
from rackwright.mesh.runs.run_store import RunStore

PUBLISHED = "/rackwright/told/"
MAX_A_TURN = 100
"""Members with events that are published in a turn: the run monitor has other work too, and a lock to renew."""


@dataclass(frozen=True)
class _StoredReport:
    """What was last published about a member, and the revision at which that was stored."""

    last: LastReport = NO_REPORT
    modified: int = 0


class MemberEvents:
    def __init__(
        self,
        store: RunStore,
        name: str,
        members: Callable[[], Iterable[Entry]],
        revoked: Callable[[], Mapping[str, int]],
    ) -> None:
        """`revoked`: names of servers that a person has removed, each with the highest issue number it covers."""
        self._store, self._name, self._members, self._revoked = store, name, members, revoked
        self._stored: dict[str, _StoredReport] = {}
        self._settled: dict[str, Entry] = {}
        self._lock: dict[str, Any] = {}

    async def publish(self, lock: dict[str, Any]) -> None:
        """Publish what has happened since the last event of each member. `lock`: the condition that it is held."""
        if lock != self._lock:
            await self._load()
            self._lock = lock
        count = 0
        for member, entry in self._observe():
            stored = self._stored.get(member.name, _StoredReport())
            events, last = events_since(stored.last, member, time.time())
            if not events:
                if entry is not None and is_settled(last, member):
                    self._settled[member.name] = entry
                continue
            if not await self._write(member.name, stored, events, last):
                # Another server has published meanwhile: its record is read before anything more is published.
                self._lock = {}
                return
            count += 1
            if count >= MAX_A_TURN:
                return

    async def delete_old(self, before: float) -> None:
        """Delete what was published about members that are in no member table any more."""
        known = {entry.name for entry in self._members()}
        for name, stored in list(self._stored.items()):
            if name not in known and is_long_gone(stored.last, before):
                await self._store.etcd.transact(
                    [unchanged(PUBLISHED + name, stored.modified)], [delete_op(PUBLISHED + name)]
                )
                del self._stored[name]

    async def _load(self) -> None:
        items = (await self._store.etcd.page(PUBLISHED)).items
        self._stored = {
            item.key.removeprefix(PUBLISHED): _StoredReport(read_last_report(item.value), item.modified)
            for item in items
        }
        self._settled = {}

    def _observe(self) -> list[tuple[ObservedMember, Entry | None]]:
        """Return the members about which there may be something to publish."""
        entries, revoked = list(self._members()), self._revoked()
        known = {entry.name for entry in entries}
        observed: list[tuple[ObservedMember, Entry | None]] = [
            (observe_member(entry, revoked.get(entry.name, 0)), entry)
            for entry in entries
            if self._settled.get(entry.name) is not entry
        ]
        gone = [name for name in revoked if name in self._stored and name not in known]
        return observed + [(ObservedMember(name, REMOVED, revoked=revoked[name]), None) for name in gone]

    async def _write(self, name: str, stored: _StoredReport, events: list[MemberEvent], last: LastReport) -> bool:
        """Write the events and the record of them. Return False if another server has published meanwhile."""
        key, value = PUBLISHED + name, last.dump()
        puts = [put_op(key, value), *(put_op(*self._encode(event)) for event in events)]
        result = await self._store.etcd.transact([unchanged(key, stored.modified), self._lock], puts, [get_op(key)])
        modified = result.revision
        if not result.succeeded:
            current = result.items()
            if not current or current[0].value != value:
                return False
            # Our own attempt, whose response was lost: no other server writes the time that is in it.
            modified = current[0].modified
        self._stored[name] = _StoredReport(last, modified)
        return True

    def _encode(self, event: MemberEvent) -> tuple[str, bytes]:
        return self._store.cluster_event(self._name, event.kind, event.fields)
