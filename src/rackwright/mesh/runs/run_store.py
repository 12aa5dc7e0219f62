"""Runs in the datastore: storing them, changing their tasks, and reading their events from any point on."""

import itertools
import json
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import (
    MAX_OPERATIONS,
    Change,
    Etcd,
    Item,
    delete_op,
    get_op,
    prefix_end,
    put_op,
    read_items,
    text64,
    unchanged,
)
from rackwright.mesh.errors import BadRequest, Fenced, MeshError, NoDatastore, Rejected, Unreadable
from rackwright.mesh.runs.event_batches import MAX_BATCH, Cursor, EventLine, read_cursor
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import (
    CHUNK,
    CLUSTER_EVENTS,
    FINAL,
    MAX_TREE,
    OPEN,
    RUNS,
    TRUST,
    RunRequest,
    Task,
    TaskState,
    alive_key,
    run_events,
    split_tree,
    task_key,
    task_pointer_prefix,
)

PAGE = 500
"""Items read at once: more than a single transaction can write."""
FEW_TARGETS = 50
"""Up to this many targets get their tasks in the same transaction that stores the run."""
_NUMBERS = itertools.count()
"""Numbers of the cluster events that this process has published."""


@dataclass(frozen=True)
class SignedText:
    """A run request or repository order with the operator's signature, as stored: not verified yet."""

    text: str
    signature: str

    def dump(self) -> bytes:
        return json.dumps({"request": self.text, "signature": self.signature}).encode()


@dataclass(frozen=True)
class StoredTask:
    """A task as stored in the datastore, with all that a target needs to run it: none of it verified yet."""

    task: Task
    item: Item
    signed: SignedText | None
    targets: list[str]
    signers: bytes
    tree: bytes
    """The first part of the packed tree"""


class RunStore:
    """The runs of a cluster in its datastore. `verifier` decides which records are believed."""

    def __init__(self, etcd: Etcd, verifier: RecordVerifier) -> None:
        self.etcd, self.verifier = etcd, verifier

    # Beginning

    async def begin(
        self,
        signed: SignedText,
        request: RunRequest,
        tree: bytes,
        states: dict[str, int],
        planner: str,
        fence: Item | None = None,
    ) -> None:
        """Store all of the run, then its tasks: a target that sees its task finds everything else stored already.

        `fence` must be unchanged; if another run moved it meanwhile, no task is stored and Fenced is raised.
        """
        base = f"{RUNS}{request.id}/"
        parts = [(f"{base}tree/{number:04d}", part) for number, part in enumerate(split_tree(tree))]
        for key, part in parts[1:]:
            await self.etcd.put(key, part)
        about = {"targets": sorted(states), "states": states, "planner": planner, "created": request.created}
        about |= {"mode": request.mode, "test": request.test, "pins": request.pins}
        first = [put_op(f"{base}request", signed.dump()), put_op(f"{base}about", json.dumps(about).encode())]
        first += [put_op(f"{OPEN}{request.id}", b"{}"), *(put_op(key, part) for key, part in parts[:1])]
        groups = list(_split_groups(sorted(states), MAX_OPERATIONS // 2))
        if len(groups) == 1 and len(states) <= FEW_TARGETS:
            first += _task_puts(request.id, groups.pop())
        fence_holds = [unchanged(fence.key, fence.modified)] if fence else []
        superseded = Fenced(f"a newer run took the place of {request.id} before it began")
        result = await self.etcd.transact(
            [unchanged(f"{base}request", 0), *fence_holds], first, [get_op(f"{base}request")]
        )
        if not result.succeeded and not result.items():
            raise superseded
        if not result.succeeded and result.items()[0].value != signed.dump():
            raise BadRequest(f"there already is a run {request.id}")
        for group in groups:
            conditions = [unchanged(task_key(request.id, group[0]), 0), *fence_holds]
            result = await self.etcd.transact(
                conditions, _task_puts(request.id, group), [get_op(task_key(request.id, group[0]))]
            )
            if not result.succeeded and not result.items():
                await self.close(request.id)
                raise superseded

    async def read_stored_task(self, run: str, target: str) -> StoredTask | None:
        """Read all that a target needs for its task, in one transaction; None if there is no task."""
        base = f"{RUNS}{run}/"
        keys = [task_key(run, target), f"{base}request", f"{base}about", f"{TRUST}/signers", f"{base}tree/0000"]
        result = await self.etcd.transact([], [get_op(key) for key in keys])
        task, request, about, signers, tree = (next(iter(result.items(index)), None) for index in range(len(keys)))
        if task is None:
            return None
        return StoredTask(
            self.verifier.verify_task(task.key, task.value),
            task,
            _read_signed(request.value) if request else None,
            _read_targets(about.value) if about else [],
            signers.value if signers else b"",
            tree.value if tree else b"",
        )

    async def read_tree(self, run: str, first: bytes = b"") -> bytes:
        """Return the packed tree; `first` is its first part, if that was read already."""
        if 0 < len(first) < CHUNK:
            return first
        parts: list[bytes] = []
        size = 0
        prefix, after = f"{RUNS}{run}/tree/", ""
        while True:
            page = await self.etcd.page(prefix, after=after, limit=2, deadline=20.0)
            parts += [item.value for item in page.items]
            size += sum(len(item.value) for item in page.items)
            if size > MAX_TREE:
                raise BadRequest(f"the states of run {run} are more than a tree of states may be")
            if not page.more:
                return b"".join(parts)
            after = page.last

    async def read_about(self, run: str) -> dict[str, Any]:
        item = await self.etcd.get(f"{RUNS}{run}/about")
        if item is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        return parse_about(item.value)

    async def list_runs(self) -> list[dict[str, Any]]:
        """Return every run that is stored and can be read, the newest last."""
        runs = []
        for item in (await self.etcd.page(RUNS, keys_only=True)).items:
            if item.key.endswith("/about"):
                run = item.key.removeprefix(RUNS).removesuffix("/about")
                try:
                    about = await self.read_about(run)
                except (Unreadable, BadRequest):  # nonsense, or deleted meanwhile
                    continue
                tasks = {task.target: task.state.value for task in await self.read_tasks(run)}
                runs.append({**about, "run": run, "tasks": tasks})
        return sorted(runs, key=lambda run: float(run["created"]))

    # Tasks

    async def read_task(self, run: str, target: str) -> tuple[Task, Item] | None:
        item = await self.etcd.get(task_key(run, target))
        return (self.verifier.verify_task(item.key, item.value), item) if item else None

    async def read_tasks(self, run: str) -> list[Task]:
        items = (await self.etcd.page(f"{run_events(run)}task/")).items
        return [self.verifier.verify_task(item.key, item.value) for item in items]

    async def change_task(
        self, item: Item, task: Task, lease: int = 0, events: Sequence[tuple[str, bytes]] = ()
    ) -> Item | None:
        """Change a task unless another server has changed it meanwhile; return the new item, or None.

        The pointer of a final task is deleted with the change. `events` are the task's last events, no more than a
        batch; they are written with the change and signed as `publish_events` does. A final state that is written again
        must be the same bytes: the caller signs it first, with `verifier.sign_task`.
        """
        task = self.verifier.sign_task(task)
        puts = [*(self._put_event(key, value) for key, value in events), put_op(item.key, task.dump())]
        if lease:
            puts.append(put_op(alive_key(task.run, task.target), b"", lease))
        if task.state in FINAL:
            puts += [
                delete_op(f"{task_pointer_prefix(task.target)}{task.run}"),
                delete_op(alive_key(task.run, task.target)),
            ]
        result = await self.etcd.transact([unchanged(item.key, item.modified)], puts, [get_op(item.key)])
        if result.succeeded:
            return replace(item, value=task.dump(), modified=result.revision)
        current = result.items()
        # Our own earlier attempt: no other server writes the session and the state that are in it.
        return current[0] if current and current[0].value == task.dump() else None

    async def live_targets(self, run: str) -> set[str]:
        """Return the targets that run their task and whose lease has not expired."""
        prefix = alive_key(run, "")
        return {item.key.removeprefix(prefix) for item in (await self.etcd.page(prefix, keys_only=True)).items}

    async def mark_lost(self, task: Task, item: Item, why: str) -> None:
        await self.change_task(item, replace(task, state=TaskState.LOST, why=why))

    # Events

    async def publish_events(self, fence: Item, events: Sequence[tuple[str, bytes]]) -> None:
        """Sign and write events, under the condition that the task is still this server's. Raises Fenced if not.

        `fence` is the task as this server last wrote it.
        """
        for group in _event_batches(events):
            still_ours, first = unchanged(fence.key, fence.modified), group[0]
            puts = [self._put_event(*event) for event in group]
            otherwise = [get_op(fence.key), get_op(first[0])]
            result = await self.etcd.transact([still_ours, unchanged(first[0], 0)], puts, otherwise, deadline=30.0)
            if result.succeeded:
                continue
            if not result.items() or result.items()[0].modified != fence.modified:
                raise Fenced("the task was given up by the others meanwhile")
            if not self._was_published(first, result.items(1)):
                # Another member has written at this key, and nobody believes what it wrote.
                await self.etcd.transact([still_ours], puts, deadline=30.0)

    def _was_published(self, event: tuple[str, bytes], stored: list[Item]) -> bool:
        """Return whether an earlier attempt of this server has written the event."""
        try:
            return any(self.verifier.verify_content(item.key, item.value) == event[1] for item in stored)
        except MeshError:
            return False

    def _put_event(self, key: str, value: bytes) -> dict[str, Any]:
        return put_op(key, self.verifier.statements.sign(key, value))

    async def read(self, prefix: str, cursor: str = "", since: float = 0.0) -> AsyncIterator[list[EventLine]]:
        """Yield the events below a prefix after the cursor, then new ones as they are written, each with its cursor.

        An empty list means that all stored events were read; it is also yielded now and then while waiting. Only
        verified events are yielded, and none that were signed before `since`. Events are written once and stay until
        the retention ends, so an old cursor finds all that is left: nothing depends on how long etcd keeps changes.
        """
        after = read_cursor(cursor)
        # Items written in a transaction share its revision; within it, keys are in order.
        revision = after.revision if after.key else after.revision + 1
        while items := await self._read_page(prefix, revision):
            fresh = [Change(item, deleted=False) for item in items if _is_after(item, after)]
            # An empty list would mean that all was read: a page without any verified event is skipped.
            if events := [event for change in fresh for event in self.verifier.verify_events(change, since, after)]:
                yield events
            revision = items[-1].modified + 1
        yield []
        async for changes in self.etcd.watch(prefix, revision):
            yield [event for change in changes for event in self.verifier.verify_events(change, since)]

    async def _read_page(self, prefix: str, revision: int) -> list[Item]:
        """Read a page of the items last written at this revision or later, never a part of a transaction."""
        body = {
            "key": text64(prefix),
            "range_end": prefix_end(prefix),
            "limit": str(PAGE),
            "sort_target": "MOD",
            "sort_order": "ASCEND",
            "min_mod_revision": str(revision),
        }
        response = await self.etcd.call("/v3/kv/range", body, 20.0)
        items = sorted(read_items(response), key=lambda item: (item.modified, item.key))
        if not response.get("more"):
            return items
        return [item for item in items if item.modified < items[-1].modified]

    async def publish_cluster_event(self, server: str, kind: str, **fields: Any) -> None:
        """Publish an event of the cluster if the datastore can be reached: what matters is also in the log."""
        try:
            await self.etcd.put(*self.cluster_event(server, kind, fields), deadline=5.0)
        except (NoDatastore, Rejected):
            return

    def cluster_event(self, server: str, kind: str, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the key and the value of a cluster event, signed by this server, whose name is `server`."""
        now = time.time()
        # Numbered: two events may be published in the same millisecond, and are read in the order of their keys.
        key = f"{CLUSTER_EVENTS}{int(now * 1000):015d}-{next(_NUMBERS):08d}-{server}-{kind}"
        event = {"kind": kind, "server": server, "time": now, **fields}
        return key, self.verifier.statements.sign(key, json.dumps(event).encode())

    # Deleting

    async def delete_old_runs(self, before: float) -> int:
        """Delete finished runs and cluster events that are older than `before`; return how many runs were deleted."""
        body = {"key": text64(CLUSTER_EVENTS), "range_end": text64(f"{CLUSTER_EVENTS}{int(before * 1000):015d}")}
        await self.etcd.call("/v3/kv/deleterange", body)
        opened = {item.key.removeprefix(OPEN) for item in (await self.etcd.page(OPEN, keys_only=True)).items}
        count = 0
        for run in await self.list_runs():
            if float(run["created"]) < before and run["run"] not in opened:
                await self.etcd.delete_all(f"{RUNS}{run['run']}/")
                await self.etcd.delete_all(run_events(run["run"]))
                count += 1
        return count

    async def list_open_runs(self) -> list[str]:
        return [item.key.removeprefix(OPEN) for item in (await self.etcd.page(OPEN, keys_only=True)).items]

    async def close(self, run: str) -> None:
        await self.etcd.delete(f"{OPEN}{run}")


def _is_after(item: Item, cursor: Cursor) -> bool:
    if item.modified > cursor.revision:
        return True
    return item.key > cursor.key or (item.key == cursor.key and cursor.count > 0)


def _read_signed(value: bytes) -> SignedText | None:
    """Read a signed request from its stored value; None if the value is something else."""
    try:
        content = read_object(value, "a run's request")
        return SignedText(str(content["request"]), str(content["signature"]))
    except (Unreadable, KeyError):
        return None


def parse_about(value: bytes) -> dict[str, Any]:
    """Read what a run's planner stored about it, unsigned: its targets, and how many states each has."""
    about = read_object(value, "what is known of a run")
    targets, states, created = about.get("targets"), about.get("states"), about.get("created")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise Unreadable("the targets of a run in the datastore cannot be read")
    counted = isinstance(states, dict) and all(isinstance(count, int) for count in states.values())
    if not counted or not isinstance(created, (int, float)) or not math.isfinite(created):
        raise Unreadable("what is known of a run in the datastore cannot be read")
    return about


def _read_targets(value: bytes) -> list[str]:
    try:
        return list(parse_about(value)["targets"])
    except Unreadable:
        return []


def _task_puts(run: str, targets: Sequence[str]) -> list[dict[str, Any]]:
    puts = []
    for target in targets:
        puts.append(put_op(task_key(run, target), Task(run, target).dump()))
        puts.append(put_op(f"{task_pointer_prefix(target)}{run}", b"{}"))
    return puts


def _split_groups(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _event_batches(events: Sequence[tuple[str, bytes]]) -> Iterable[list[tuple[str, bytes]]]:
    """Split events into batches that etcd accepts: of limited operations and limited bytes."""
    group: list[tuple[str, bytes]] = []
    size = 0
    for event in events:
        if group and (len(group) >= MAX_OPERATIONS or size + len(event[1]) > MAX_BATCH):
            yield group
            group, size = [], 0
        group.append(event)
        size += len(event[1])
    if group:
        yield group
