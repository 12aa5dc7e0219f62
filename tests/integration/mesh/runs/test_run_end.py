"""Ending runs, and keeping an older run from following a newer one, against one real etcd."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.mesh.etcd import PatientEtcd

from rackwright.mesh.errors import Fenced
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_end import Superseded, cancel_run, pass_fence
from rackwright.mesh.runs.run_model import RunRequest, Targets, TaskState
from rackwright.mesh.runs.run_store import RunStore, SignedText


@pytest.fixture
async def store(etcd_url: str, verifier: RecordVerifier) -> AsyncIterator[RunStore]:
    etcd = PatientEtcd(lambda: [etcd_url], None)
    await etcd.get("/ready")
    yield RunStore(etcd, verifier)
    await etcd.close()


def request(id: str, scope: str, token: int) -> RunRequest:
    return RunRequest(id, "cluster", 0, 1, "digest", Targets(("s1", "s2")), scope=scope, token=token)


async def begin(store: RunStore, new: RunRequest) -> None:
    fence = await pass_fence(store, new)
    await store.begin(SignedText(new.dump(), ""), new, b"tree", {"s1": 1, "s2": 1}, "s1", fence)


async def states(store: RunStore, run: str) -> dict[str, TaskState]:
    return {task.target: task.state for task in await store.read_tasks(run)}


async def finish(store: RunStore, run: str, target: str) -> None:
    stored = await store.read_task(run, target)
    assert stored is not None
    assert await store.change_task(stored[1], replace(stored[0], state=TaskState.DONE)) is not None


async def test_cancelling_ends_what_has_not_ended_and_nothing_else(store: RunStore) -> None:
    await begin(store, request("a1", "", 0))
    await finish(store, "a1", "s1")
    assert await cancel_run(store, "a1", "somebody asked for it") == ["s2"]
    assert await states(store, "a1") == {"s1": TaskState.DONE, "s2": TaskState.CANCELLED}
    assert await cancel_run(store, "a1", "again") == []


async def test_a_newer_run_ends_the_older_one_of_its_scope_before_it_begins(store: RunStore) -> None:
    await begin(store, request("b1", "b", 1))
    await begin(store, request("other", "elsewhere", 1))
    await begin(store, request("b2", "b", 2))
    assert set((await states(store, "b1")).values()) == {TaskState.CANCELLED}
    assert set((await states(store, "b2")).values()) == {TaskState.PENDING}
    assert set((await states(store, "other")).values()) == {TaskState.PENDING}


async def test_an_older_run_that_comes_late_is_refused_and_touches_nothing(store: RunStore) -> None:
    await begin(store, request("c2", "c", 2))
    for late in (request("c1", "c", 1), request("c2-again", "c", 2)):
        with pytest.raises(Superseded, match="nothing was begun"):
            await begin(store, late)
    assert set((await states(store, "c2")).values()) == {TaskState.PENDING}


async def test_a_run_that_is_overtaken_while_it_begins_reaches_nobody(store: RunStore) -> None:
    slow = request("d1", "d", 1)
    fence = await pass_fence(store, slow)
    await begin(store, request("d2", "d", 2))
    with pytest.raises(Fenced, match="d1"):
        await store.begin(SignedText(slow.dump(), ""), slow, b"tree", {"s1": 1, "s2": 1}, "s1", fence)
    assert await states(store, "d1") == {}
    assert "d1" not in await store.list_open_runs()


async def test_a_run_that_is_cancelled_while_it_begins_reaches_nobody(store: RunStore) -> None:
    slow = request("e1", "e", 1)
    fence = await pass_fence(store, slow)
    await cancel_run(store, "e1", "somebody asked for it", "e", 1)
    with pytest.raises(Fenced):
        await store.begin(SignedText(slow.dump(), ""), slow, b"tree", {"s1": 1}, "s1", fence)
    with pytest.raises(Superseded):
        await begin(store, slow)
    await begin(store, request("e2", "e", 2))
    assert set((await states(store, "e2")).values()) == {TaskState.PENDING}


async def test_cancelling_an_older_run_leaves_the_newer_one_alone(store: RunStore) -> None:
    await begin(store, request("f1", "f", 1))
    await begin(store, request("f2", "f", 2))
    await cancel_run(store, "f1", "late", "f", 1)
    assert set((await states(store, "f2")).values()) == {TaskState.PENDING}
    await begin(store, request("f3", "f", 3))
    assert set((await states(store, "f2")).values()) == {TaskState.CANCELLED}
