"""Ends runs early: on request, or because a newer run of the same scope replaces an older one.

A run may have a `scope` and a `token`: of all runs of a scope only the run with the highest token goes on. A newer run
ends the older one before it begins, and an older run that arrives late is refused, however long it was delayed. Both
compare tokens in the datastore (the scope's fence), so this needs no clock and no trust in the server that was slow.
"""

import json
import secrets
from dataclasses import dataclass, replace

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import Item
from rackwright.mesh.errors import MeshError, Unreadable
from rackwright.mesh.runs.run_model import FINAL, RunRequest, TaskState
from rackwright.mesh.runs.run_store import RunStore

FENCES = "/rackwright/fences/"


class Superseded(MeshError):
    """A newer run has taken this one's place"""

    code = "superseded"


async def cancel_run(store: RunStore, run: str, why: str, scope: str = "", token: int = 0) -> list[str]:
    """Cancel the tasks of a run that have not ended. A target notices within seconds, and ends what it has started.

    With its scope and token, a run is ended even while it begins: its tasks are not stored any more.
    """
    if scope:
        await _close_fence(store, f"{FENCES}{scope}", token)
    cancelled = []
    for task in await store.read_tasks(run):
        while (stored := await store.read_task(run, task.target)) is not None and stored[0].state not in FINAL:
            current, item = stored
            if await store.change_task(item, replace(current, state=TaskState.CANCELLED, why=why)) is not None:
                cancelled.append(task.target)
                break
    return cancelled


@dataclass(frozen=True)
class _FenceMark:
    """The newest run of a scope, and its token."""

    token: int
    run: str

    def dump(self) -> bytes:
        return json.dumps({"token": self.token, "run": self.run}).encode()


def _read_fence(item: Item | None) -> _FenceMark | None:
    """Read the mark of a scope's fence; None if there is none, or if the value is something else."""
    try:
        content = read_object(item.value, "a fence") if item else {}
    except Unreadable:
        return None
    token, run = content.get("token"), content.get("run")
    return _FenceMark(token, run) if isinstance(token, int) and isinstance(run, str) else None


async def _close_fence(store: RunStore, key: str, token: int) -> None:
    """Close a fence: no run with this token, or with a lower one, begins any more."""
    while True:
        item = await store.etcd.get(key)
        before = _read_fence(item)
        closed = _FenceMark(token, f"shut by {secrets.token_hex(8)}")
        if (before is not None and before.token > token) or await store.etcd.replace(key, closed.dump(), item):
            return


async def pass_fence(store: RunStore, request: RunRequest) -> Item | None:
    """Make a run the newest of its scope, and end the run before it. Raises Superseded if it is not the newest.

    Return the fence, which must be unchanged when the tasks are stored; None for a run without scope.
    """
    if not request.scope:
        return None
    key, ours = f"{FENCES}{request.scope}", _FenceMark(request.token, request.id)
    while True:
        item = await store.etcd.get(key)
        before = _read_fence(item)
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
            await cancel_run(store, before.run, f"a newer run took its place: {request.id}")
        if item is None or item.value != ours.dump():
            continue
        return item
