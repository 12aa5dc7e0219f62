"""Runs in the datastore: putting them there, changing their tasks, and reading what happened, from any point on."""

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
from rackwright.mesh.runs.believed_records import RunBelief
from rackwright.mesh.runs.event_batches import MAX_BATCH, Cursor, Told, read_cursor
from rackwright.mesh.runs.run_model import (
    CHUNK,
    CLUSTER_EVENTS,
    FINAL,
    MAX_TREE,
    OPEN,
    RUNS,
    TRUST,
    Request,
    Task,
    TaskState,
    alive_key,
    chunks,
    pointers,
    read_request,
    run_events,
    task_key,
)

PAGE = 500
"""More than one transaction can write."""
FEW_TARGETS = 50
"""So many are told with the same transaction that stores the run."""
_NUMBERS = itertools.count()
"""Of the cluster's events that this process has told."""


@dataclass(frozen=True)
class Signed:
    """A request with the operator's signature, as it lies in the datastore: not believed yet."""

    text: str
    signature: str

    def dump(self) -> bytes:
        return json.dumps({"request": self.text, "signature": self.signature}).encode()


@dataclass(frozen=True)
class Found:
    """A task as it lies in the datastore, with what belongs to it: none of it believed yet."""

    task: Task
    item: Item
    signed: Signed | None
    targets: list[str]
    signers: bytes
    tree: bytes
    """Its first part"""


class RunStore:
    def __init__(self, etcd: Etcd, belief: RunBelief) -> None:
        self.etcd, self.belief = etcd, belief

    # Beginning

    async def begin(
        self,
        signed: Signed,
        request: Request,
        tree: bytes,
        states: dict[str, int],
        planner: str,
        fence: Item | None = None,
    ) -> None:
        """Store the run whole, then tell its targets: a target that sees its task finds everything else in place.

        With a fence that somebody moved meanwhile nobody is told, and it raises Fenced.
        """
        base = f"{RUNS}{request.id}/"
        parts = [(f"{base}tree/{number:04d}", part) for number, part in enumerate(chunks(tree))]
        for key, part in parts[1:]:
            await self.etcd.put(key, part)
        about = {"targets": sorted(states), "states": states, "planner": planner, "created": request.created}
        about |= {"mode": request.mode, "test": request.test, "pins": request.pins}
        first = [put_op(f"{base}request", signed.dump()), put_op(f"{base}about", json.dumps(about).encode())]
        first += [put_op(f"{OPEN}{request.id}", b"{}"), *(put_op(key, part) for key, part in parts[:1])]
        groups = list(_groups(sorted(states), MAX_OPERATIONS // 2))
        if len(groups) == 1 and len(states) <= FEW_TARGETS:
            first += _tasks(request.id, groups.pop())
        stands = [unchanged(fence.key, fence.modified)] if fence else []
        overtaken = Fenced(f"a newer run took the place of {request.id} before it began")
        done = await self.etcd.transact([unchanged(f"{base}request", 0), *stands], first, [get_op(f"{base}request")])
        if not done.succeeded and not done.items():
            raise overtaken
        if not done.succeeded and done.items()[0].value != signed.dump():
            raise BadRequest(f"there already is a run {request.id}")
        for group in groups:
            conditions = [unchanged(task_key(request.id, group[0]), 0), *stands]
            told = await self.etcd.transact(
                conditions, _tasks(request.id, group), [get_op(task_key(request.id, group[0]))]
            )
            if not told.succeeded and not told.items():
                await self.close(request.id)
                raise overtaken

    async def found(self, run: str, target: str) -> Found | None:
        """All that a target needs to know of its task, in one question; None if there is none."""
        base = f"{RUNS}{run}/"
        wanted = [task_key(run, target), f"{base}request", f"{base}about", f"{TRUST}/signers", f"{base}tree/0000"]
        done = await self.etcd.transact([], [get_op(key) for key in wanted])
        task, request, about, signers, tree = (next(iter(done.items(place)), None) for place in range(len(wanted)))
        if task is None:
            return None
        return Found(
            self.belief.task(task.key, task.value),
            task,
            _signed(request.value) if request else None,
            _targets(about.value) if about else [],
            signers.value if signers else b"",
            tree.value if tree else b"",
        )

    async def signed(self, run: str) -> Signed:
        item = await self.etcd.get(f"{RUNS}{run}/request")
        signed = _signed(item.value) if item else None
        if signed is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        return signed

    async def tree(self, run: str, first: bytes = b"") -> bytes:
        """The packed tree; `first` is its first part, if that is known."""
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

    async def about(self, run: str) -> dict[str, Any]:
        item = await self.etcd.get(f"{RUNS}{run}/about")
        if item is None:
            raise BadRequest(f"there is no run {run}; see: rackwright mesh runs")
        return read_about(item.value)

    async def runs(self) -> list[dict[str, Any]]:
        """Every run that is kept and can be read, the newest last."""
        found = []
        for item in (await self.etcd.page(RUNS, keys_only=True)).items:
            if item.key.endswith("/about"):
                run = item.key.removeprefix(RUNS).removesuffix("/about")
                try:
                    about = await self.about(run)
                except (Unreadable, BadRequest):  # of no use to anybody, or gone meanwhile
                    continue
                tasks = {task.target: task.state.value for task in await self.tasks(run)}
                found.append({**about, "run": run, "tasks": tasks})
        return sorted(found, key=lambda run: float(run["created"]))

    # Tasks

    async def task(self, run: str, target: str) -> tuple[Task, Item] | None:
        item = await self.etcd.get(task_key(run, target))
        return (self.belief.task(item.key, item.value), item) if item else None

    async def tasks(self, run: str) -> list[Task]:
        items = (await self.etcd.page(f"{run_events(run)}task/")).items
        return [self.belief.task(item.key, item.value) for item in items]

    async def change(
        self, item: Item, task: Task, lease: int = 0, events: Sequence[tuple[str, bytes]] = ()
    ) -> Item | None:
        """Change a task if nobody has meanwhile; the new item, or None. A final task loses its pointer with it.

        `events` are written with it, signed as those of `publish`: its last ones, no more than a batch. An end that is
        tried again must be the same: whoever tries signs it first, with `belief.signed`.
        """
        task = self.belief.signed(task)
        puts = [*(self._put_event(key, value) for key, value in events), put_op(item.key, task.dump())]
        if lease:
            puts.append(put_op(alive_key(task.run, task.target), b"", lease))
        if task.state in FINAL:
            puts += [delete_op(f"{pointers(task.target)}{task.run}"), delete_op(alive_key(task.run, task.target))]
        done = await self.etcd.transact([unchanged(item.key, item.modified)], puts, [get_op(item.key)])
        if done.succeeded:
            return replace(item, value=task.dump(), modified=done.revision)
        now = done.items()
        # Our own earlier attempt: the session and the state in it are ours alone.
        return now[0] if now and now[0].value == task.dump() else None

    async def alive(self, run: str) -> set[str]:
        """The targets that run it and whose leases live."""
        prefix = alive_key(run, "")
        return {item.key.removeprefix(prefix) for item in (await self.etcd.page(prefix, keys_only=True)).items}

    async def lose(self, task: Task, item: Item, why: str) -> None:
        await self.change(item, replace(task, state=TaskState.LOST, why=why))

    # Events

    async def publish(self, fence: Item, events: Sequence[tuple[str, bytes]]) -> None:
        """Write events, signed, under the condition that the task is still ours. Raises Fenced if it is not."""
        for group in _by_size(events):
            still_ours, first = unchanged(fence.key, fence.modified), group[0]
            puts = [self._put_event(*event) for event in group]
            asked = [get_op(fence.key), get_op(first[0])]
            done = await self.etcd.transact([still_ours, unchanged(first[0], 0)], puts, asked, deadline=30.0)
            if done.succeeded:
                continue
            if not done.items() or done.items()[0].modified != fence.modified:
                raise Fenced("the task was given up by the others meanwhile")
            if not self._was_published(first, done.items(1)):
                # Somebody else has written there, whom nobody believes.
                await self.etcd.transact([still_ours], puts, deadline=30.0)

    def _was_published(self, event: tuple[str, bytes], found: list[Item]) -> bool:
        """Whether an earlier attempt of our own has written it."""
        try:
            return any(self.belief.content(item.key, item.value) == event[1] for item in found)
        except MeshError:
            return False

    def _put_event(self, key: str, value: bytes) -> dict[str, Any]:
        return put_op(key, self.belief.statements.sign(key, value))

    async def read(self, prefix: str, cursor: str = "", since: float = 0.0) -> AsyncIterator[list[Told]]:
        """What was written below the prefix after the cursor, then what is written, each with its own cursor; nothing
        at all when it has caught up, and now and then. Only what is believed, and was not signed before `since`.

        Events are written once and stay until their time is over, so an old cursor finds all that is left: nothing
        depends on how long etcd remembers changes.
        """
        after = read_cursor(cursor)
        # What was written in one transaction shares its revision; within it, keys are in order.
        revision = after.revision if after.key else after.revision + 1
        while items := await self._from(prefix, revision):
            fresh = [Change(item, deleted=False) for item in items if _is_after(item, after)]
            # Nothing at all would say that there is no more: a page of which nothing is believed is passed over.
            if believed := [event for change in fresh for event in self.belief.told(change, since, after)]:
                yield believed
            revision = items[-1].modified + 1
        yield []
        async for changes in self.etcd.watch(prefix, revision):
            yield [event for change in changes for event in self.belief.told(change, since)]

    async def _from(self, prefix: str, revision: int) -> list[Item]:
        """A page of what was last written at this revision or later, whole transactions only."""
        body = {
            "key": text64(prefix),
            "range_end": prefix_end(prefix),
            "limit": str(PAGE),
            "sort_target": "MOD",
            "sort_order": "ASCEND",
            "min_mod_revision": str(revision),
        }
        answer = await self.etcd.call("/v3/kv/range", body, 20.0)
        items = sorted(read_items(answer), key=lambda item: (item.modified, item.key))
        if not answer.get("more"):
            return items
        return [item for item in items if item.modified < items[-1].modified]

    async def tell(self, server: str, kind: str, **fields: Any) -> None:
        """An event of the cluster. Told if the datastore can be reached, for what matters is also in the log."""
        try:
            await self.etcd.put(*self.cluster_event(server, kind, fields), deadline=5.0)
        except (NoDatastore, Rejected):
            return

    def cluster_event(self, server: str, kind: str, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        """Where an event of the cluster is kept, and what lies there: signed by this server, which is `server`."""
        now = time.time()
        # Numbered: two may be told in one millisecond, and are read in the order of their keys.
        key = f"{CLUSTER_EVENTS}{int(now * 1000):015d}-{next(_NUMBERS):08d}-{server}-{kind}"
        event = {"kind": kind, "server": server, "time": now, **fields}
        return key, self.belief.statements.sign(key, json.dumps(event).encode())

    # Forgetting

    async def forget(self, before: float) -> int:
        """Drop finished runs and cluster events that are older than this; how many runs."""
        body = {"key": text64(CLUSTER_EVENTS), "range_end": text64(f"{CLUSTER_EVENTS}{int(before * 1000):015d}")}
        await self.etcd.call("/v3/kv/deleterange", body)
        opened = {item.key.removeprefix(OPEN) for item in (await self.etcd.page(OPEN, keys_only=True)).items}
        count = 0
        for run in await self.runs():
            if float(run["created"]) < before and run["run"] not in opened:
                await self.etcd.delete_all(f"{RUNS}{run['run']}/")
                await self.etcd.delete_all(run_events(run["run"]))
                count += 1
        return count

    async def open_runs(self) -> list[str]:
        return [item.key.removeprefix(OPEN) for item in (await self.etcd.page(OPEN, keys_only=True)).items]

    async def close(self, run: str) -> None:
        await self.etcd.delete(f"{OPEN}{run}")

    async def request(self, run: str) -> Request:
        return read_request((await self.signed(run)).text)


def _is_after(item: Item, cursor: Cursor) -> bool:
    if item.modified > cursor.revision:
        return True
    return item.key > cursor.key or (item.key == cursor.key and cursor.count > 0)


def _signed(value: bytes) -> Signed | None:
    """A request as it lies there; None for something else."""
    try:
        content = read_object(value, "a run's request")
        return Signed(str(content["request"]), str(content["signature"]))
    except (Unreadable, KeyError):
        return None


def read_about(value: bytes) -> dict[str, Any]:
    """What a run's planner wrote of it, which nobody has signed: its targets, and how many states each has."""
    about = read_object(value, "what is known of a run")
    targets, states, created = about.get("targets"), about.get("states"), about.get("created")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise Unreadable("the targets of a run in the datastore cannot be read")
    counted = isinstance(states, dict) and all(isinstance(count, int) for count in states.values())
    if not counted or not isinstance(created, (int, float)) or not math.isfinite(created):
        raise Unreadable("what is known of a run in the datastore cannot be read")
    return about


def _targets(value: bytes) -> list[str]:
    try:
        return list(read_about(value)["targets"])
    except Unreadable:
        return []


def _tasks(run: str, targets: Sequence[str]) -> list[dict[str, Any]]:
    puts = []
    for target in targets:
        puts.append(put_op(task_key(run, target), Task(run, target).dump()))
        puts.append(put_op(f"{pointers(target)}{run}", b"{}"))
    return puts


def _groups(names: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _by_size(events: Sequence[tuple[str, bytes]]) -> Iterable[list[tuple[str, bytes]]]:
    """Batches that etcd takes: so many operations and so many bytes at most."""
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
