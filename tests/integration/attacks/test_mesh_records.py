"""What a member of the mesh that was taken over leaves in the datastore so that others trip over it, for ever.

It may write any key and any value there, also after it is known to be rogue and until it is removed. What it left must
not keep the parts that read the datastore from all that comes after it. Here against one real etcd; a member that does
this to running agents is in `test_mesh_member.py`.
"""

import json
from collections.abc import AsyncIterator

import pytest
from tests.support.mesh.etcd import PatientEtcd

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore import cluster_config
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.datastore.etcd_client import Change, Etcd, text64
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.errors import Unreadable
from rackwright.mesh.runs.event_batches import event_lines, read_cursor
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import OPEN, RUNS, Task, gate_prefix, run_events, task_key, task_pointer_prefix
from rackwright.mesh.runs.run_store import RunStore, parse_about

LONG = "x" * 1_200_000
"""etcd keeps a key of this length, and refuses a question that names it twice: as one about all keys below it does."""
ODD = "\udcff"
"""A byte in a key that is no text."""
CENTURY = 100 * 365 * 86_400


@pytest.fixture
async def etcd(etcd_url: str) -> AsyncIterator[Etcd]:
    client = PatientEtcd(lambda: [etcd_url], None)
    await client.get("/ready")
    yield client
    await client.close()


async def put(etcd: Etcd, key: str, value: bytes = b"{}") -> None:
    """As a rogue member writes: without asking first what is there."""
    await etcd.call("/v3/kv/put", {"key": text64(key), "value": text64(value)})


def about(created: object = 1) -> bytes:
    return json.dumps({"targets": ["s1"], "states": {"s1": 1}, "created": created}).encode()


async def test_a_run_with_an_endless_name_does_not_hide_the_others(etcd: Etcd, verifier: RecordVerifier) -> None:
    """Whoever looks after all runs, one after another, would come no further than to this one."""
    store = RunStore(etcd, verifier)
    for name in (LONG, "zz-honest"):
        await put(etcd, f"{OPEN}{name}")
        await put(etcd, f"{RUNS}{name}/about", about())
        await put(etcd, f"{task_pointer_prefix('s1')}{name}")
    await put(etcd, task_key("zz-honest", "s1"), Task("zz-honest", "s1").dump())
    await put(etcd, task_key("zz-honest", LONG))
    assert await store.list_open_runs() == ["zz-honest"]
    assert [run["run"] for run in await store.list_runs()] == ["zz-honest"]
    assert [task.target for task in await store.read_tasks("zz-honest")] == ["s1"]
    assert [item.key for item in (await etcd.page(task_pointer_prefix("s1"))).items] == [
        f"{task_pointer_prefix('s1')}zz-honest"
    ]


async def test_a_watch_passes_over_an_endless_name(etcd: Etcd) -> None:
    begin = (await etcd.page("/watched/")).revision + 1
    for name in (LONG, "honest"):
        await put(etcd, f"/watched/{name}")
    async for changes in etcd.watch("/watched/", begin):
        if changes:
            assert [change.item.key for change in changes] == ["/watched/honest"]
            return


async def test_a_tree_of_states_with_keys_that_are_no_text_is_read_to_its_end(
    etcd: Etcd, verifier: RecordVerifier
) -> None:
    """Its digest then says that it is not what was signed; the agent must come so far."""
    keys = ["0000", f"0000{ODD}", f"0000{ODD}{ODD}", "0001"]
    for key in keys:
        await etcd.put(f"{RUNS}odd/tree/{key}", b"part ")
    assert await RunStore(etcd, verifier).read_tree("odd") == b"part " * len(keys)


async def test_a_cursor_after_a_key_with_the_cursors_own_sign_can_be_gone_on_from(etcd: Etcd) -> None:
    """Anybody may take a place at a gate, by any name; who follows the run begins anew from there."""
    key = f"{gate_prefix('r', 'g')}slot/x#y"
    await etcd.put(key, b"")
    item = await etcd.get(key)
    assert item is not None
    (only,) = event_lines(Change(item, deleted=False))
    cursor = read_cursor(only.cursor)
    assert (cursor.revision, cursor.key, cursor.count) == (item.modified, key, 0)
    assert run_events("r") in only.cursor


@pytest.mark.parametrize("seconds", [0, CENTURY])
async def test_a_lock_that_would_never_end_is_taken_away(etcd: Etcd, seconds: int) -> None:
    """Without a lease, or with one that outlives its holder by far: nobody would conduct the datastore any more."""
    key = f"/locks/{seconds}"
    await etcd.put(key, b"mallory 1", await etcd.grant(seconds) if seconds else 0)
    lock = Lock(etcd, key, "s1", 5)
    assert not await lock.hold()
    assert await lock.hold()
    await lock.check()


async def test_a_lock_of_an_honest_holder_is_left_alone(etcd: Etcd) -> None:
    first, second = Lock(etcd, "/locks/honest", "s1", 60), Lock(etcd, "/locks/honest", "s2", 5)
    assert await first.hold()
    for _ in range(3):
        assert not await second.hold()
    await first.check()


ENDLESS = "9" * 400
"""JSON has no longest number, and no float is so large."""


@pytest.mark.parametrize("value", [ENDLESS, f"-{ENDLESS}", "1e308", "-1", "1e999", "NaN", "true", '"x"', "[]"])
async def test_settings_that_nobody_can_calculate_with_are_not_used(etcd: Etcd, value: str) -> None:
    text = ", ".join(f'"{key}": {value}' for key in cluster_config.setting_names())
    await etcd.put(cluster_config.KEY, f"{{{text}}}".encode())
    config = cluster_config.apply_overrides(DatastoreConfig(), await cluster_config.read_settings(etcd))
    assert config == DatastoreConfig()


def test_a_number_without_an_end_is_refused_wherever_the_datastore_is_read() -> None:
    with pytest.raises(Unreadable):
        parse_about(about().replace(b'"created": 1', f'"created": {ENDLESS}'.encode()))
    with pytest.raises(Unreadable):
        read_object(f'{{"seconds": [{{"x": {ENDLESS}}}]}}', "a task")
    assert read_object('{"n": -12}', "a task") == {"n": -12}


def test_counts_of_states_that_are_none_are_refused() -> None:
    """They are shown to whoever asks for the run."""
    with pytest.raises(Unreadable):
        parse_about(about().replace(b'{"s1": 1}', b'{"s1": []}'))
