"""Deaths and failing software become events in a real etcd: each once, also when another server publishes them."""

from collections.abc import AsyncIterator

import pytest
from tests.support.mesh.etcd import PatientEtcd

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import put_op
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.health.health_checks import CheckReport, Status, pack_reports
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.metadata import Section, pack_sections
from rackwright.mesh.runs.member_events import PUBLISHED, MemberEvents
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import CLUSTER_EVENTS
from rackwright.mesh.runs.run_store import RunStore

SECONDS = 60


@pytest.fixture
async def store(etcd_url: str, verifier: RecordVerifier) -> AsyncIterator[RunStore]:
    etcd = PatientEtcd(lambda: [etcd_url], None)
    await etcd.delete_all("/rackwright/")
    yield RunStore(etcd, verifier)
    await etcd.close()


class Server:
    """A server that may hold the run monitor's lock, with its own view of the members."""

    def __init__(self, store: RunStore) -> None:
        self.entries: dict[str, Entry] = {}
        self.revoked: dict[str, int] = {}
        self.events = MemberEvents(store, "s1", lambda: self.entries.values(), lambda: self.revoked)

    def observes(self, name: str, state: State, incarnation: int, *failing: str) -> None:
        checks = [CheckReport(check, Status.FAILING, "refused") for check in failing] or [
            CheckReport("web", Status.PASSING)
        ]
        health = pack_sections({Section.HEALTH: pack_reports(checks)})
        self.entries[name] = Entry(
            MemberRecord(name, "10.0.0.1:7946", incarnation, 1, metadata=health), state, float(incarnation)
        )


async def published(store: RunStore) -> list[str]:
    """Return the believed events in the order in which every reader gets them."""
    lines: list[str] = []
    async for batch in store.read(CLUSTER_EVENTS):
        if not batch:
            break
        events = [read_object(event.line, "an event") for event in batch]
        lines += [" ".join([event["kind"], event["member"], event.get("check", "")]).strip() for event in events]
    return lines


async def test_each_happening_is_told_once_although_the_teller_dies_and_another_takes_over(store: RunStore) -> None:
    first, second = Server(store), Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    for server in (first, second):
        server.observes("s2", State.ALIVE, 2)
        server.observes("s3", State.ALIVE, 2)
    await first.events.publish(lock.condition())
    first.observes("s2", State.DEAD, 3)
    first.observes("s3", State.SUSPECT, 3, "web", "db")
    await first.events.publish(lock.condition())
    await first.events.publish(lock.condition())
    expected = ["member_joined s2", "member_joined s3", "member_dead s2", "check_failing s3 db", "check_failing s3 web"]
    assert await published(store) == expected

    slept = lock.condition()
    await lock.release()
    heir = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await heir.hold()
    # It has not heard of the death yet, and tells nothing old as news; then it hears, which is no news either.
    await second.events.publish(heir.condition())
    second.observes("s2", State.DEAD, 3)
    second.observes("s3", State.ALIVE, 3, "web", "db")
    await second.events.publish(heir.condition())
    assert await published(store) == expected

    # The one before slept, and believes to hold the lock: what it tells does not count.
    first.observes("s2", State.ALIVE, 4)
    await first.events.publish(slept)
    await first.events.publish(slept)
    assert await published(store) == expected
    second.observes("s2", State.ALIVE, 4)
    await second.events.publish(heir.condition())
    assert await published(store) == [*expected, "member_alive s2"]


async def test_two_servers_dying_at_once_are_two_events(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackwright.mesh.runs.run_store.time.time", lambda: 1_000_000.0)
    monkeypatch.setattr("rackwright.mesh.identity.signed_statements.time.time", lambda: 1_000_000.0)
    keys = {store.cluster_event("s1", "member_dead", {"member": name})[0] for name in ("s2", "s3")}
    assert len(keys) == 2


async def test_what_a_rogue_member_put_in_place_of_what_was_told_stops_nobody(store: RunStore) -> None:
    server = Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    server.observes("s2", State.ALIVE, 2)
    await server.events.publish(lock.condition())
    await store.etcd.transact([], [put_op(f"{PUBLISHED}s2", b"[[[["), put_op(f"{PUBLISHED}s9", b"\xff")])
    server.observes("s2", State.DEAD, 2)
    await server.events.publish(lock.condition())
    await server.events.publish(lock.condition())
    assert (await published(store))[-1] == "member_dead s2"


async def test_a_removed_server_is_told_once_and_long_gone_ones_are_forgotten(store: RunStore) -> None:
    server = Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    server.observes("s2", State.ALIVE, 2)
    server.observes("s3", State.ALIVE, 2)
    await server.events.publish(lock.condition())
    del server.entries["s2"]
    server.revoked["s2"] = 7
    await server.events.publish(lock.condition())
    await server.events.publish(lock.condition())
    assert await published(store) == ["member_joined s2", "member_joined s3", "member_removed s2"]
    del server.entries["s3"]
    await server.events.delete_old(before=0.0)
    assert len((await store.etcd.page(PUBLISHED)).items) == 2
    await server.events.delete_old(before=float("inf"))
    assert [item.key for item in (await store.etcd.page(PUBLISHED)).items] == [f"{PUBLISHED}s3"], (
        "who was alive is known still"
    )
