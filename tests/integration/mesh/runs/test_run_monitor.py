"""The run monitor against a real etcd and a view of members that the test sets: every run ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.mesh.etcd import PatientEtcd
from tests.support.waiting import until

from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.identity.authority import AuthorityFiles
from rackwright.mesh.identity.revocation import RevocationFile
from rackwright.mesh.log import Log
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_end import pass_fence
from rackwright.mesh.runs.run_model import RunRequest, Targets, TaskState
from rackwright.mesh.runs.run_monitor import RunMonitor, RunMonitorPorts
from rackwright.mesh.runs.run_store import RunStore, SignedText


class Alone:
    """A view of members in which this server knows nobody else."""

    def __init__(self, name: str) -> None:
        self._entry = Entry(MemberRecord(name, "192.0.2.1:7946", 1, 1), State.ALIVE, 0.0)

    @property
    def me(self) -> MemberRecord:
        return self._entry.record

    def members(self) -> list[Entry]:
        return [self._entry]

    def member(self, name: str) -> Entry | None:
        return self._entry if name == self._entry.name else None


@pytest.fixture
async def store(etcd_url: str, verifier: RecordVerifier) -> AsyncIterator[RunStore]:
    etcd = PatientEtcd(lambda: [etcd_url], None)
    await etcd.get("/ready")
    yield RunStore(etcd, verifier)
    await etcd.close()


def monitor_of(store: RunStore, folder: Path, lines: list[str]) -> RunMonitor:
    ca = AuthorityFiles(folder / "overseen").create("overseen").ca
    ports = RunMonitorPorts(
        name="s1",
        config=DatastoreConfig(),
        store=store,
        is_voter=lambda: True,
        members=Alone("s1"),
        revocations=RevocationFile(folder / "revocations.json", ca),
        log=Log("s1", lines.append),
    )
    return RunMonitor(ports)


async def begin(store: RunStore, run: str) -> None:
    request = RunRequest(run, "cluster", 0, 1, "digest", Targets(("gone",)))
    await store.begin(
        SignedText(request.dump(), ""), request, b"tree", {"gone": 1}, "s1", await pass_fence(store, request)
    )


async def test_a_task_of_a_server_that_nobody_knows_is_lost_and_its_run_is_closed(
    store: RunStore, tmp_path: Path
) -> None:
    await begin(store, "r1")
    lines: list[str] = []
    monitoring = asyncio.create_task(monitor_of(store, tmp_path, lines).run())
    try:
        await until(lambda: is_closed(store, "r1"), "the run was not closed")
    finally:
        monitoring.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await monitoring
    [task] = await store.read_tasks("r1")
    assert task.state is TaskState.LOST
    assert "nothing was done there" in task.why
    assert any("task_lost" in line for line in lines)


async def is_closed(store: RunStore, run: str) -> bool:
    return run not in await store.list_open_runs()
