"""A lock in the datastore, held by a lease: it has at most one holder, and one that slept too long knows that it lost
it.

The lock's creation revision is the fencing token: writes under the lock carry the condition that the lock is still the
same one.
"""

import time
from typing import Any

from rackwright.mesh.datastore.etcd_client import Etcd, Item, created_at, get_op, put_op, unchanged
from rackwright.mesh.errors import Fenced, MeshError

LONGEST_SECONDS = 600
"""No lock is held by a lease that is longer than this, and than ten times our own: settings may differ."""
MARGIN = 0.8
"""The part of a lease's time for which its holder relies on it: etcd's clock and ours may run apart a little."""


def clock() -> float:
    """Return the time of a clock that goes on while the machine is suspended, and that cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lock:
    """A lock by its key, as one server takes and holds it."""

    def __init__(self, etcd: Etcd, key: str, owner: str, seconds: int) -> None:
        self.etcd, self.key, self.owner, self.seconds = etcd, key, owner, seconds
        self._lease = 0
        self._created = 0
        self._until = 0.0
        self._known_lease = 0
        """The lease of another holder that was found to end by itself."""

    @property
    def held(self) -> bool:
        return self._created > 0 and clock() < self._until

    async def hold(self) -> bool:
        """Take the lock if it is free, or prolong it. Return whether it is held; NoDatastore means that it is not."""
        if self._lease and not await self._prolong():
            self._lease = self._created = 0
        if not self._created:
            await self._take()
        return self.held

    async def _prolong(self) -> bool:
        began = clock()
        if not await self.etcd.keep_alive(self._lease, deadline=self.seconds / 2):
            return False
        self._until = began + self.seconds * MARGIN
        return True

    async def _take(self) -> None:
        current = await self.etcd.get(self.key, deadline=self.seconds / 2)
        if current is not None:
            if not await self._ends_by_itself(current):
                # No holder writes such a lock; one left by a rogue member would last for ever, also after its removal.
                await self.etcd.delete(self.key, current)
            return
        began = clock()
        self._lease = self._lease or await self.etcd.grant(self.seconds, deadline=self.seconds / 2)
        value = f"{self.owner} {self._lease}".encode()
        result = await self.etcd.transact(
            [unchanged(self.key, 0)], [put_op(self.key, value, self._lease)], [get_op(self.key)], self.seconds / 2
        )
        if result.succeeded:
            self._created = result.revision
        elif any(item.value == value for item in result.items()):
            self._created = result.items()[0].created
        else:
            return
        self._until = began + self.seconds * MARGIN

    async def _ends_by_itself(self, lock: Item) -> bool:
        """Whether a lock has a lease that ends soon after its holder does. etcd is asked once for each lease."""
        if lock.lease and lock.lease != self._known_lease:
            granted = await self.etcd.granted_seconds(lock.lease, deadline=self.seconds / 2)
            self._known_lease = lock.lease if granted <= max(LONGEST_SECONDS, 10 * self.seconds) else 0
        return lock.lease != 0 and lock.lease == self._known_lease

    def condition(self) -> dict[str, Any]:
        """Return the condition of a transaction that the lock is still the one that was taken here."""
        return created_at(self.key, self._created)

    async def check(self) -> None:
        """Raise Fenced unless the lock is held: as the datastore says now, and as our clock says afterwards."""
        if self._created:
            result = await self.etcd.transact([self.condition()], [], [], deadline=1.0)
            if result.succeeded and self.held:
                return
        raise Fenced

    async def release(self) -> None:
        """Give the lock back, if it is held."""
        lease, self._lease, self._created = self._lease, 0, 0
        if lease:
            try:
                await self.etcd.revoke(lease)
            except MeshError:
                # The lease ends by itself when its time is up.
                return

    async def read_owner(self) -> str:
        """Return the server that holds the lock now; empty if none does."""
        item = await self.etcd.get(self.key, deadline=1.0)
        return item.value.decode(errors="replace").partition(" ")[0] if item else ""
