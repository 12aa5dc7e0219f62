"""A lock in the datastore, held by a lease: at most one holder, and a holder that slept too long knows that it is none.

The lock's creation revision is the fencing token: what is written under the lock carries the condition that the lock is
still the same one.
"""

import time
from typing import Any

from rackwright.mesh.datastore.etcd_client import Etcd, Item, get_op, made_at, put_op, unchanged
from rackwright.mesh.errors import Fenced, MeshError

LONGEST_SECONDS = 600
"""No lock is held by a lease that is longer than this, and than ten times our own: settings may differ."""
MARGIN = 0.8
"""The part of a lease's time for which its holder believes in it: etcd's clock and ours may run apart a little."""


def clock() -> float:
    """Seconds that go on while the machine is suspended, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lock:
    def __init__(self, etcd: Etcd, key: str, owner: str, seconds: int) -> None:
        self.etcd, self.key, self.owner, self.seconds = etcd, key, owner, seconds
        self._lease = 0
        self._created = 0
        self._until = 0.0
        self._known_lease = 0
        """Of another holder, and found to end by itself."""

    @property
    def held(self) -> bool:
        return self._created > 0 and clock() < self._until

    async def hold(self) -> bool:
        """Take the lock if it is free, or keep it. False, or no datastore, means that it is not held."""
        if self._lease and not await self._keep():
            self._lease = self._created = 0
        if not self._created:
            await self._take()
        return self.held

    async def _keep(self) -> bool:
        began = clock()
        if not await self.etcd.keep(self._lease, deadline=self.seconds / 2):
            return False
        self._until = began + self.seconds * MARGIN
        return True

    async def _take(self) -> None:
        current = await self.etcd.get(self.key, deadline=self.seconds / 2)
        if current is not None:
            if not await self._ends_by_itself(current):
                # No holder writes such a lock; left by a rogue member it would stand for ever, also after its removal.
                await self.etcd.delete(self.key, current)
            return
        began = clock()
        self._lease = self._lease or await self.etcd.grant(self.seconds, deadline=self.seconds / 2)
        value = f"{self.owner} {self._lease}".encode()
        done = await self.etcd.transact(
            [unchanged(self.key, 0)], [put_op(self.key, value, self._lease)], [get_op(self.key)], self.seconds / 2
        )
        if done.succeeded:
            self._created = done.revision
        elif any(item.value == value for item in done.items()):
            self._created = done.items()[0].created
        else:
            return
        self._until = began + self.seconds * MARGIN

    async def _ends_by_itself(self, lock: Item) -> bool:
        """Whether the lock has a lease that ends soon after its holder does. Asked once for each lease."""
        if lock.lease and lock.lease != self._known_lease:
            granted = await self.etcd.granted(lock.lease, deadline=self.seconds / 2)
            self._known_lease = lock.lease if granted <= max(LONGEST_SECONDS, 10 * self.seconds) else 0
        return lock.lease != 0 and lock.lease == self._known_lease

    def condition(self) -> dict[str, Any]:
        """Holds only while the lock is the one that was taken here."""
        return made_at(self.key, self._created)

    async def check(self) -> None:
        """Refuse to go on unless the lock is held, as the datastore says now and our clock says afterwards."""
        if self._created:
            done = await self.etcd.transact([self.condition()], [], [], deadline=1.0)
            if done.succeeded and self.held:
                return
        raise Fenced

    async def release(self) -> None:
        lease, self._lease, self._created = self._lease, 0, 0
        if lease:
            try:
                await self.etcd.revoke(lease)
            except MeshError:
                # It ends by itself when its time is up.
                return

    async def owner_now(self) -> str:
        item = await self.etcd.get(self.key, deadline=1.0)
        return item.value.decode(errors="replace").partition(" ")[0] if item else ""
