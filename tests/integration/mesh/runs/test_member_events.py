"""Deaths and failing software become events in a real etcd: once, whoever tells, and also when the teller changes."""

from collections.abc import AsyncIterator

import pytest
from tests.support.etcd import PatientEtcd

from rackwright.mesh.bounded_json import read_object
from rackwright.mesh.datastore.etcd_client import put_op
from rackwright.mesh.datastore.lock import Lock
from rackwright.mesh.health.health_checks import Result, Status, pack_results
from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.metadata import Section, pack_sections
from rackwright.mesh.runs.believed_records import RunBelief
from rackwright.mesh.runs.member_events import TOLD, MemberEvents
from rackwright.mesh.runs.run_model import CLUSTER_EVENTS
from rackwright.mesh.runs.run_store import RunStore

SECONDS = 60


@pytest.fixture
async def store(etcd_url: str, belief: RunBelief) -> AsyncIterator[RunStore]:
    etcd = PatientEtcd(lambda: [etcd_url], None)
    await etcd.delete_all("/rackwright/")
    yield RunStore(etcd, belief)
    await etcd.close()


class Server:
    """One that may hold the overseer's lock, with a view of its own."""

    def __init__(self, store: RunStore) -> None:
        self.entries: dict[str, Entry] = {}
        self.revoked: dict[str, int] = {}
        self.events = MemberEvents(store, "s1", lambda: self.entries.values(), lambda: self.revoked)

    def sees(self, name: str, state: State, incarnation: int, *failing: str) -> None:
        checks = [Result(check, Status.FAILING, "refused") for check in failing] or [Result("web", Status.PASSING)]
        health = pack_sections({Section.HEALTH: pack_results(checks)})
        self.entries[name] = Entry(
            MemberRecord(name, "10.0.0.1:7946", incarnation, 1, metadata=health), state, float(incarnation)
        )


async def told(store: RunStore) -> list[str]:
    """The events in the order in which anybody reads them, who is allowed to say them included."""
    found = []
    async for news in store.read(CLUSTER_EVENTS):
        if not news:
            break
        events = [read_object(event.line, "an event") for event in news]
        found += [" ".join([event["kind"], event["member"], event.get("check", "")]).strip() for event in events]
    return found


async def test_each_happening_is_told_once_although_the_teller_dies_and_another_takes_over(store: RunStore) -> None:
    first, second = Server(store), Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    for server in (first, second):
        server.sees("s2", State.ALIVE, 2)
        server.sees("s3", State.ALIVE, 2)
    await first.events.tell(lock.condition())
    first.sees("s2", State.DEAD, 3)
    first.sees("s3", State.SUSPECT, 3, "web", "db")
    await first.events.tell(lock.condition())
    await first.events.tell(lock.condition())
    expected = ["member_joined s2", "member_joined s3", "member_dead s2", "check_failing s3 db", "check_failing s3 web"]
    assert await told(store) == expected

    slept = lock.condition()
    await lock.release()
    heir = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await heir.hold()
    # It has not heard of the death yet, and tells nothing old as news; then it hears, which is no news either.
    await second.events.tell(heir.condition())
    second.sees("s2", State.DEAD, 3)
    second.sees("s3", State.ALIVE, 3, "web", "db")
    await second.events.tell(heir.condition())
    assert await told(store) == expected

    # The one before slept, and believes to hold the lock: what it tells does not count.
    first.sees("s2", State.ALIVE, 4)
    await first.events.tell(slept)
    await first.events.tell(slept)
    assert await told(store) == expected
    second.sees("s2", State.ALIVE, 4)
    await second.events.tell(heir.condition())
    assert await told(store) == [*expected, "member_alive s2"]


async def test_two_servers_dying_at_once_are_two_events(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackwright.mesh.runs.run_store.time.time", lambda: 1_000_000.0)
    monkeypatch.setattr("rackwright.mesh.identity.signed_statements.time.time", lambda: 1_000_000.0)
    keys = {store.cluster_event("s1", "member_dead", {"member": name})[0] for name in ("s2", "s3")}
    assert len(keys) == 2


async def test_what_a_rogue_member_put_in_place_of_what_was_told_stops_nobody(store: RunStore) -> None:
    server = Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    server.sees("s2", State.ALIVE, 2)
    await server.events.tell(lock.condition())
    await store.etcd.transact([], [put_op(f"{TOLD}s2", b"[[[["), put_op(f"{TOLD}s9", b"\xff")])
    server.sees("s2", State.DEAD, 2)
    await server.events.tell(lock.condition())
    await server.events.tell(lock.condition())
    assert (await told(store))[-1] == "member_dead s2"


async def test_a_removed_server_is_told_once_and_long_gone_ones_are_forgotten(store: RunStore) -> None:
    server = Server(store)
    lock = Lock(store.etcd, "/rackwright/overseer", "s1", SECONDS)
    assert await lock.hold()
    server.sees("s2", State.ALIVE, 2)
    server.sees("s3", State.ALIVE, 2)
    await server.events.tell(lock.condition())
    del server.entries["s2"]
    server.revoked["s2"] = 7
    await server.events.tell(lock.condition())
    await server.events.tell(lock.condition())
    assert await told(store) == ["member_joined s2", "member_joined s3", "member_removed s2"]
    del server.entries["s3"]
    await server.events.forget(before=0.0)
    assert len((await store.etcd.page(TOLD)).items) == 2
    await server.events.forget(before=float("inf"))
    assert [item.key for item in (await store.etcd.page(TOLD)).items] == [f"{TOLD}s3"], "who was alive is known still"
