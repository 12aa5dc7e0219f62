"""The client of the datastore, locks and events, against one real etcd."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.mesh.etcd import PatientEtcd
from tests.support.waiting import PATIENCE

from rackwright.mesh.datastore.etcd_client import Etcd, Item, delete_op
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.errors import Fenced, NoDatastore, Rejected
from rackwright.mesh.runs.event_batches import pack
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import EVENTS, Task, TaskState, state_key, task_key
from rackwright.mesh.runs.run_store import RunStore

LEASE = 3600
"""Seconds: nobody loses a lock here because a machine is slow."""


@pytest.fixture
async def etcd(etcd_url: str) -> AsyncIterator[Etcd]:
    made = PatientEtcd(lambda: ["http://127.0.0.1:1", etcd_url], None)
    await made.get("/ready")
    yield made
    await made.close()


async def test_a_member_that_refuses_costs_an_attempt_and_no_more(etcd: Etcd) -> None:
    await etcd.put("/a", b"1")
    item = await etcd.get("/a")
    assert item is not None
    assert item.value == b"1"


async def test_without_any_member_it_says_so(etcd_url: str) -> None:
    nowhere = Etcd(lambda: ["http://127.0.0.1:1"], None)
    with pytest.raises(NoDatastore, match="mesh datastore"):
        await nowhere.get("/a", deadline=0.5)
    await nowhere.close()


async def test_a_write_on_top_of_something_older_is_not_done(etcd: Etcd) -> None:
    await etcd.put("/b", b"1")
    before = await etcd.get("/b")
    await etcd.put("/b", b"2")
    assert not await etcd.replace("/b", b"3", before)
    assert not await etcd.replace("/b", b"3", None)
    assert await etcd.replace("/b", b"3", await etcd.get("/b"))


class Repeating(PatientEtcd):
    """Sends each transaction twice and tells of the second answer only: the first was lost on its way back."""

    async def call_counted(self, path: str, body: dict[str, object], deadline: float) -> tuple[dict[str, object], int]:
        answer, _ = await super().call_counted(path, body, deadline)
        if path.endswith("/txn"):
            if self.between is not None:
                await self.between()
            answer, _ = await super().call_counted(path, body, deadline)
        return answer, 2

    between = None


async def test_a_write_whose_answer_was_lost_is_known_to_be_done_although_others_wrote_since(etcd_url: str) -> None:
    other = PatientEtcd(lambda: [etcd_url], None)
    await other.put("/c", b"before")
    retrying = Repeating(lambda: [etcd_url], None)

    async def others_write() -> None:
        for number in range(3):
            await other.put("/c", f"other-{number}".encode())

    before = await other.get("/c")
    retrying.between = others_write  # type: ignore[assignment]  # a stand-in for the network
    assert await retrying.replace("/c", b"mine", before)
    assert not await retrying.replace("/c", b"mine too", before)
    await retrying.close()
    await other.close()


async def test_a_watch_tells_each_change_once_from_where_it_was_asked(etcd: Etcd) -> None:
    await etcd.put("/d/1", b"1")
    first = await etcd.get("/d/1")
    assert first is not None
    await etcd.put("/d/2", b"2")
    seen: list[tuple[str, bool]] = []
    async with asyncio.timeout(PATIENCE):
        async for changes in etcd.watch("/d/", first.modified + 1):
            seen += [(change.item.key, change.deleted) for change in changes]
            if len(seen) == 1:
                await etcd.transact([], [delete_op("/d/1")])
            elif len(seen) >= 2:
                break
    assert seen == [("/d/2", False), ("/d/1", True)]


async def test_a_lock_has_one_holder_and_the_next_when_it_is_given_back(etcd: Etcd) -> None:
    first, second = Lock(etcd, "/lock/a", "first", LEASE), Lock(etcd, "/lock/a", "second", LEASE)
    assert await first.hold()
    assert not await second.hold()
    assert await first.read_owner() == "first"
    await first.release()
    assert await second.hold()
    with pytest.raises(Fenced):
        await first.check()


async def test_a_holder_whose_lease_is_gone_is_fenced_although_its_clock_says_otherwise(etcd: Etcd) -> None:
    lock, other = Lock(etcd, "/lock/b", "slept", LEASE), Lock(etcd, "/lock/b", "other", LEASE)
    assert await lock.hold()
    await etcd.revoke(lock._lease)
    assert await other.hold()
    assert lock.held, "its own clock does not know"
    with pytest.raises(Fenced):
        await lock.check()
    assert not await lock.hold()


# Tasks and events


async def running(store: RunStore, run: str) -> Item:
    task = Task(run, "s1", TaskState.RUNNING, session=1)
    await store.etcd.put(task_key(run, "s1"), task.dump())
    item = await store.etcd.get(task_key(run, "s1"))
    assert item is not None
    return item


def events(run: str, numbers: range) -> list[tuple[str, bytes]]:
    return [(state_key(run, "s1", number), line(run, number)) for number in numbers]


def line(run: str, number: int) -> bytes:
    return json.dumps({"run": run, "target": "s1", "n": number}).encode()


async def read_numbers(store: RunStore, run: str, cursor: str) -> tuple[list[int], list[str]]:
    """What is there after a cursor: the numbers, and their cursors."""
    numbers: list[int] = []
    cursors: list[str] = []
    async for news in store.read(f"{EVENTS}run/{run}/state/", cursor):
        if not news:
            return numbers, cursors
        numbers += [json.loads(told.line)["n"] for told in news]
        cursors += [told.cursor for told in news]
    raise AssertionError("a reader never ends by itself")


async def test_a_thousand_events_are_read_once_and_in_order_from_any_cursor(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    store = RunStore(etcd, verifier)
    fence = await running(store, "r1")
    await store.publish_events(fence, events("r1", range(1000)))
    numbers, cursors = await read_numbers(store, "r1", "")
    assert numbers == list(range(1000))
    for cut in (0, 119, 120, 500, 777, 999):
        assert (await read_numbers(store, "r1", cursors[cut]))[0] == list(range(cut + 1, 1000))


async def test_events_that_share_a_value_are_read_once_and_in_order_from_any_cursor(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    store = RunStore(etcd, verifier)
    fence = await running(store, "r5")
    lines = [line("r5", number) for number in range(1000)]
    batches = [pack(lines[start : start + 300]) for start in range(0, 1000, 300)]
    keyed = [(state_key("r5", "s1", number), batch) for number, batch in enumerate(batches)]
    await store.publish_events(fence, keyed[:2])
    await store.publish_events(fence, keyed[2:])
    numbers, cursors = await read_numbers(store, "r5", "")
    assert numbers == list(range(1000))
    for cut in (0, 298, 299, 300, 599, 600, 777, 999):
        assert (await read_numbers(store, "r5", cursors[cut]))[0] == list(range(cut + 1, 1000))


async def test_the_last_events_of_a_task_come_with_its_end_and_before_it(etcd: Etcd, verifier: RecordVerifier) -> None:
    store = RunStore(etcd, verifier)
    fence = await running(store, "r6")
    ended = Task("r6", "s1", TaskState.DONE, session=1)
    last = [(state_key("r6", "s1", 1), pack([line("r6", 1), line("r6", 2)]))]
    assert await store.change_task(fence, ended, events=last) is not None
    async for news in store.read(f"{EVENTS}run/r6/"):
        assert [told.line for told in news] == [line("r6", 1), line("r6", 2), ended.dump()]
        assert len({told.cursor.partition(":")[0] for told in news}) == 1, "one transaction"
        break


async def test_events_that_were_published_are_not_published_again_by_a_retry(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    store = RunStore(etcd, verifier)
    fence = await running(store, "r2")
    await store.publish_events(fence, events("r2", range(3)))
    await store.publish_events(fence, events("r2", range(3)))
    assert (await read_numbers(store, "r2", ""))[0] == [0, 1, 2]


async def test_a_target_that_was_given_up_cannot_publish_or_finish_any_more(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    store = RunStore(etcd, verifier)
    fence = await running(store, "r3")
    found = await store.read_task("r3", "s1")
    assert found is not None
    await store.mark_lost(found[0], found[1], "it was away")
    with pytest.raises(Fenced):
        await store.publish_events(fence, events("r3", range(1)))
    assert await store.change_task(fence, replace(found[0], state=TaskState.DONE)) is None
    assert (await store.read_tasks("r3"))[0].state is TaskState.LOST


async def test_a_task_is_claimed_by_one_of_two(etcd: Etcd, verifier: RecordVerifier) -> None:
    store = RunStore(etcd, verifier)
    await etcd.put(task_key("r4", "s1"), Task("r4", "s1").dump())
    found = await store.read_task("r4", "s1")
    assert found is not None
    task, item = found
    claims = [replace(task, state=TaskState.RUNNING, session=number) for number in (1, 2)]
    held = await asyncio.gather(*(store.change_task(item, claim) for claim in claims))
    assert [one is None for one in held].count(True) == 1


async def test_what_is_older_than_the_retention_is_forgotten(
    etcd: Etcd, tmp_path: Path, verifier: RecordVerifier
) -> None:
    store = RunStore(etcd, verifier)
    await store.publish_cluster_event("s1", "old")
    await store.delete_old_runs(before=2e9)
    await store.publish_cluster_event("s1", "new")
    async for news in store.read(f"{EVENTS}cluster/"):
        assert [json.loads(told.line)["kind"] for told in news] == ["new"]
        break
    assert len((await etcd.page(f"{EVENTS}cluster/")).items) == 1


async def test_a_refusal_is_told_as_one_and_not_retried(etcd: Etcd) -> None:
    with pytest.raises(Rejected):
        await etcd.call("/v3/kv/put", {"key": "", "value": "eA=="})


async def test_a_page_of_which_nothing_is_believed_does_not_end_the_reading(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    """Or a member that writes junk in front of what others say would silence them."""
    store = RunStore(etcd, verifier)
    for number in range(3):
        await etcd.put(state_key("r7", "s1", number), b"junk")
    fence = await running(store, "r7")
    await store.publish_events(fence, events("r7", range(3, 5)))
    assert (await read_numbers(store, "r7", ""))[0] == [3, 4]


async def test_events_are_written_over_what_somebody_else_put_in_their_place(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    """Or a member that writes there first would silence another."""
    store = RunStore(etcd, verifier)
    fence = await running(store, "r8")
    await etcd.put(state_key("r8", "s1", 0), b"junk")
    await store.publish_events(fence, events("r8", range(2)))
    assert (await read_numbers(store, "r8", ""))[0] == [0, 1]
