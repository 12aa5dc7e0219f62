"""Tells the cluster's events of servers and their software: each happening once, whoever and how many saw it.

Every server sees a death; the one that holds the overseer's lock tells it. What was told last of each server lies in
the datastore, and an event is written in one transaction with it, under the condition that it is unchanged and the lock
still held. So a holder that ends in the middle, or is slow, leaves nothing told twice or not at all: the next one
compares what it sees with what was told. What is worth telling is `mesh/health/member_news.py`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackwright.mesh.datastore.etcd_client import delete_op, get_op, put_op, unchanged
from rackwright.mesh.health.member_news import (
    NOTHING,
    REMOVED,
    LastTold,
    News,
    Seen,
    is_long_gone,
    is_settled,
    news_of,
    read_last_told,
    seen_of,
)
from rackwright.mesh.membership.member import Entry
from rackwright.mesh.runs.run_store import RunStore

TOLD = "/rackwright/told/"
MAX_A_TURN = 100
"""Servers of which something is told at once: whoever tells has other work too, and a lock to keep."""


@dataclass(frozen=True)
class _Kept:
    last: LastTold = NOTHING
    modified: int = 0


class MemberEvents:
    def __init__(
        self,
        store: RunStore,
        name: str,
        members: Callable[[], Iterable[Entry]],
        revoked: Callable[[], Mapping[str, int]],
    ) -> None:
        """`revoked`: names of servers that a person has shut out, with the issue number up to which they are."""
        self._store, self._name, self._members, self._revoked = store, name, members, revoked
        self._kept: dict[str, _Kept] = {}
        self._settled: dict[str, Entry] = {}
        self._lock: dict[str, Any] = {}

    async def tell(self, lock: dict[str, Any]) -> None:
        """Tell what has happened since the last event of each server. `lock`: the condition that it is still held."""
        if lock != self._lock:
            await self._load()
            self._lock = lock
        count = 0
        for seen, entry in self._seen():
            kept = self._kept.get(seen.name, _Kept())
            events, last = news_of(kept.last, seen, time.time())
            if not events:
                if entry is not None and is_settled(last, seen):
                    self._settled[seen.name] = entry
                continue
            if not await self._write(seen.name, kept, events, last):
                # Somebody else has told meanwhile: what was told is read before anything more is.
                self._lock = {}
                return
            count += 1
            if count >= MAX_A_TURN:
                return

    async def forget(self, before: float) -> None:
        """Drop what was told of servers that nobody knows any more."""
        known = {entry.name for entry in self._members()}
        for name, kept in list(self._kept.items()):
            if name not in known and is_long_gone(kept.last, before):
                await self._store.etcd.transact([unchanged(TOLD + name, kept.modified)], [delete_op(TOLD + name)])
                del self._kept[name]

    async def _load(self) -> None:
        items = (await self._store.etcd.page(TOLD)).items
        self._kept = {item.key.removeprefix(TOLD): _Kept(read_last_told(item.value), item.modified) for item in items}
        self._settled = {}

    def _seen(self) -> list[tuple[Seen, Entry | None]]:
        """The servers of which there may be something to tell."""
        entries, revoked = list(self._members()), self._revoked()
        known = {entry.name for entry in entries}
        seen: list[tuple[Seen, Entry | None]] = [
            (seen_of(entry, revoked.get(entry.name, 0)), entry)
            for entry in entries
            if self._settled.get(entry.name) is not entry
        ]
        gone = [name for name in revoked if name in self._kept and name not in known]
        return seen + [(Seen(name, REMOVED, revoked=revoked[name]), None) for name in gone]

    async def _write(self, name: str, kept: _Kept, events: list[News], last: LastTold) -> bool:
        """Write the events with what has then been told. False if another has told something meanwhile."""
        key, value = TOLD + name, last.dump()
        puts = [put_op(key, value), *(put_op(*self._event(news)) for news in events)]
        done = await self._store.etcd.transact([unchanged(key, kept.modified), self._lock], puts, [get_op(key)])
        modified = done.revision
        if not done.succeeded:
            found = done.items()
            if not found or found[0].value != value:
                return False
            # An attempt of our own whose answer was lost: the moment in it is ours alone.
            modified = found[0].modified
        self._kept[name] = _Kept(last, modified)
        return True

    def _event(self, news: News) -> tuple[str, bytes]:
        return self._store.cluster_event(self._name, news.kind, news.fields)
