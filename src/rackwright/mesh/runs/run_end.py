"""Ending runs before their time: by whoever asks for it, or because a newer run took the older one's place.

A run may carry a `scope` and a `token`: of all runs of one scope only the one with the highest token goes on. A newer
one ends the older before it begins, and an older one that comes late is refused, however long it was on its way. The
datastore is what they meet in, so this needs no clock and no trust in whoever was slow.
"""

import json
import secrets
from dataclasses import dataclass, replace

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Item
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.runs.run_model import FINAL, Request, TaskState
from rackwright.mesh.runs.run_store import RunStore

FENCES = "/rackwright/fences/"


class Superseded(MeshError):
    """A newer run has taken this one's place"""

    code = "superseded"


async def cancel(store: RunStore, run: str, why: str, scope: str = "", token: int = 0) -> list[str]:
    """End what has not ended of a run. A target notices within seconds, and ends what it has started.

    With its scope and token it is ended even while it is being begun: its tasks are not handed out any more.
    """
    if scope:
        await _shut(store, f"{FENCES}{scope}", token)
    ended = []
    for task in await store.tasks(run):
        while (found := await store.task(run, task.target)) is not None and found[0].state not in FINAL:
            current, item = found
            if await store.change(item, replace(current, state=TaskState.CANCELLED, why=why)) is not None:
                ended.append(task.target)
                break
    return ended


@dataclass(frozen=True)
class _Mark:
    token: int
    run: str

    def dump(self) -> bytes:
        return json.dumps({"token": self.token, "run": self.run}).encode()


def _read_mark(item: Item | None) -> _Mark | None:
    """The mark that stands; None if there is none, or something else."""
    try:
        content = read_object(item.value, "a fence") if item else {}
    except Unreadable:
        return None
    token, run = content.get("token"), content.get("run")
    return _Mark(token, run) if isinstance(token, int) and isinstance(run, str) else None


async def _shut(store: RunStore, key: str, token: int) -> None:
    """Nothing with this token, or with a lower one, begins any more."""
    while True:
        item = await store.etcd.get(key)
        before = _read_mark(item)
        shut = _Mark(token, f"shut by {secrets.token_hex(8)}")
        if (before is not None and before.token > token) or await store.etcd.replace(key, shut.dump(), item):
            return


async def pass_fence(store: RunStore, request: Request) -> Item | None:
    """Make this the newest run of its scope, and end the one before it. Raises Superseded if it is not the newest.

    Gives what must still stand when its tasks are handed out; None for a run without scope.
    """
    if not request.scope:
        return None
    key, ours = f"{FENCES}{request.scope}", _Mark(request.token, request.id)
    while True:
        item = await store.etcd.get(key)
        before = _read_mark(item)
        if before is not None and before != ours and before.token >= ours.token:
            raise Superseded(
                f"run {before.run} with the token {before.token} came first, and this one has {ours.token}: nothing was"
                " begun"
            )
        if item is None or before != ours:
            if not await store.etcd.replace(key, ours.dump(), item):
                continue
            item = await store.etcd.get(key)
        if before is not None and before != ours:
            await cancel(store, before.run, f"a newer run took its place: {request.id}")
        if item is None or item.value != ours.dump():
            continue
        return item
