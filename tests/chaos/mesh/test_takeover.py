"""The datastore of five servers, hurt while clients use it. It must stay linearizable, lose no acknowledged write, and
come back to full strength by itself; without a quorum it must do nothing.

Nobody is replaced before it was gone for 40 seconds, so that a busy machine replaces nobody; only once somebody was
hurt is it a second, and then a server more that is replaced changes nothing of what is asserted. One test has a
grace of its own, `GRACE`.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.boot_provider import program_of
from tests.support.mesh.fleet_datastore import (
    UNHURRIED_STORE,
    Client,
    block_peers,
    client,
    configure_store,
    datastore,
    freeze,
    leader,
    takeover_soon,
    thaw,
    unblock_peers,
    wait_complete,
    wires,
)
from tests.support.mesh.linearizable import Kind, Operation, first_problem
from tests.support.mesh.netns import AS_SHIPPED, cluster, network
from tests.support.waiting import wait_until

from rackwright.lab.mesh_fleet import Fleet

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")
GRACE = 10
"""Seconds after which one that is gone is replaced where a test waits to see that nobody is."""


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("store")
    with network(SERVERS) as net, cluster(folder, SERVERS, net, UNHURRIED_STORE, AS_SHIPPED) as fleet:
        yield fleet


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    """All five alive with a complete datastore, before and after each test."""
    formed.wait_agree(ALIVE)
    wait_complete(formed, "s1")
    yield formed
    wires(formed).heal()
    for server in SERVERS:
        unblock_peers(formed, server)
    formed.start_all()


@pytest.fixture
def using(five: Fleet, tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """Start clients on chosen servers; afterwards all their operations must be linearizable."""
    clients: list[Client] = []

    def use(server: str) -> Client:
        new_client = Client(five, server, tmp_path / f"{server}.history")
        clients.append(new_client)
        new_client.wait_writes(5)
        return new_client

    def history() -> list[Operation]:
        return [operation for each_client in clients for operation in each_client.operations()]

    try:
        yield use
        wait_until(
            lambda: any(writes_before(read, history()) for read in history()),
            "what was written has been read",
            every=0.2,
        )
    finally:
        for each_client in clients:
            each_client.end()
    assert first_problem(history()) is None
    assert first_problem(corrupted(history())) is not None, "the checker must see a lost write"


def writes_before(read: Operation, history: list[Operation]) -> list[Operation]:
    """Return the writes to a read's key that had ended when the read began; none for an operation that is no read."""
    if read.kind is not Kind.READ:
        return []
    return [write for write in history if write.key == read.key and write.kind is Kind.WRITE and write.end < read.start]


def corrupted(history: list[Operation]) -> list[Operation]:
    """Return the same history, but its last read returns a value that was overwritten before: a write was lost."""
    reads = [operation for operation in history if writes_before(operation, history)]
    last = max(reads, key=lambda operation: operation.start)
    writes = writes_before(last, history)
    first, second = min(writes, key=lambda write: write.end), max(writes, key=lambda write: write.start)
    stale = first.value if first.end < second.start else "never written"
    return [replace(operation, value=stale) if operation is last else operation for operation in history]


def plain_servers(fleet: Fleet, observer: str) -> list[str]:
    return sorted(set(SERVERS) - wait_complete(fleet, observer))


def becomes_plain(fleet: Fleet, server: str) -> None:
    wait_until(lambda: datastore(fleet, server)["here"] == "none", f"{server} is a datastore no more", every=0.2)


def conductor(fleet: Fleet, observer: str) -> str:
    return str(datastore(fleet, observer)["conductor"])


def logged_events(fleet: Fleet, server: str, event: str) -> list[dict[str, Any]]:
    return [line for line in fleet.log(server) if line["event"] == event]


def count_logged(fleet: Fleet, event: str) -> int:
    return sum(len(logged_events(fleet, server, event)) for server in SERVERS)


def logged_at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


def test_another_takes_over_from_the_killed_leader_while_a_client_writes(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    victim, watcher = leader(five, "s1"), plain_servers(five, "s1")[-1]
    writer = using(watcher)
    assert [program_of(process) for process in five.processes(victim)].count("etcd") == 1, "which dies with its agent"
    killed = time.monotonic()
    five.kill(victim)
    with takeover_soon(five, watcher):
        writer.wait_writes(10, since=killed)
        wait_complete(five, watcher, without=[victim])
    five.start(victim)
    becomes_plain(five, victim)
    wait_complete(five, watcher, without=[victim])


def test_two_in_a_row_are_both_replaced(five: Fleet, using: Callable[[str], Client]) -> None:
    watcher = plain_servers(five, "s1")[-1]
    writer = using(watcher)
    gone: list[str] = []
    for _ in range(2):
        victim = min(wait_complete(five, watcher, without=gone) - {watcher})
        killed = time.monotonic()
        five.kill(victim)
        gone.append(victim)
        with takeover_soon(five, watcher):
            wait_complete(five, watcher, without=gone)
        writer.wait_writes(5, since=killed)


def learner(fleet: Fleet, before: int) -> str:
    """Who was added as a learner since there were `before` of them."""

    def added() -> list[str]:
        lines = [line for server in SERVERS for line in logged_events(fleet, server, "datastore_learner_added")]
        return [line["member"] for line in sorted(lines, key=logged_at)][before:]

    return wait_until(added, "somebody was made a learner", every=0.2)[0]


def begin_a_takeover_that_hangs(fleet: Fleet) -> tuple[str, str, str]:
    """Kill a datastore server, and let nobody who takes over learn: whom, who learns, and who comes next."""
    plain, victim = plain_servers(fleet, "s1"), min(wait_complete(fleet, "s1"))
    before = count_logged(fleet, "datastore_learner_added")
    for server in plain:
        block_peers(fleet, server)
    fleet.kill(victim)
    with takeover_soon(fleet, plain[0]):
        first = learner(fleet, before)
    (second,) = set(plain) - {first}
    return victim, first, second


def test_a_candidate_that_dies_while_it_takes_over_is_followed_by_the_next(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    victim, first, second = begin_a_takeover_that_hangs(five)
    using(second)
    five.kill(first)
    unblock_peers(five, second)
    with takeover_soon(five, second):
        wait_complete(five, second, without=[victim, first])


def test_a_learner_that_never_catches_up_is_given_up(five: Fleet) -> None:
    victim, first, second = begin_a_takeover_that_hangs(five)
    unblock_peers(five, second)

    def given_up() -> bool:
        removals = [line for server in SERVERS for line in logged_events(five, server, "datastore_member_removed")]
        return any(line["member"] == first and "not caught up" in line["why"] for line in removals)

    assert not given_up()
    configure_store(five, second, "datastore.learner_seconds=1")
    wait_until(given_up, f"{first} is given up because it does not learn", every=0.2)
    assert five.running(first), "it was given up because it did not learn, not because it died"
    # On a busy machine nobody learns in a second. So that the second has all the time, the first is not tried again.
    five.kill(first)
    configure_store(five, second, "datastore.learner_seconds=")
    with takeover_soon(five, second):
        wait_complete(five, second, without=[victim, first])


def test_the_small_side_of_a_partition_neither_answers_nor_acts(five: Fleet, using: Callable[[str], Client]) -> None:
    lone = leader(five, "s1")
    plain = plain_servers(five, "s1")
    large = [server for server in SERVERS if server not in (lone, plain[0])]
    inside, outside = using(plain[0]), using(plain[1])
    with takeover_soon(five, plain[1]):
        wires(five).split([lone, plain[0]])
        cut, cut_at = time.monotonic(), time.time()
        wait_complete(five, large[0], without=[lone])
        outside.wait_writes(5, since=cut)
        wait_until(lambda: inside.tries(since=cut) >= 3, "the client on the small side has tried in vain", every=0.2)
        wait_until(
            lambda: datastore(five, lone)["quorum"] is False, "the small side knows that it has no quorum", every=0.2
        )
        removals = [
            line for server in (lone, plain[0]) for line in logged_events(five, server, "datastore_member_removed")
        ]
        assert [line for line in removals if logged_at(line) > cut_at] == []
    healing = time.monotonic()
    wires(five).heal()
    # What was begun on the small side was not answered there. That nothing stale was given out as fresh before either
    # side knew is proved by the history of both clients together.
    answered = [operation for operation in inside.operations() if operation.start > cut and operation.end < healing]
    assert answered == []
    five.wait_agree(ALIVE)
    becomes_plain(five, lone)


def freeze_conductor(fleet: Fleet, observer: str) -> tuple[str, list[int]]:
    """Freeze the server that conducts, so that it has the lease in its sleep: which, and what to thaw."""

    def asleep_with_its_lease() -> list[tuple[str, list[int]]]:
        server = conductor(fleet, observer)
        if not server:
            return []
        frozen = freeze(fleet, server)
        if conductor(fleet, observer) == server:
            return [(server, frozen)]
        thaw(frozen)
        return []

    return wait_until(asleep_with_its_lease, "the one who conducts sleeps", every=0.2)[0]


def test_a_leader_that_slept_past_its_lease_does_not_act_when_it_wakes(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    watcher = plain_servers(five, "s1")[-1]
    writer = using(watcher)
    sleeper, frozen = freeze_conductor(five, watcher)
    acts = ("datastore_member_removed", "datastore_learner_added")
    try:
        before = {event: logged_events(five, sleeper, event) for event in acts}
        asleep = time.monotonic()
        with takeover_soon(five, watcher):
            wait_complete(five, watcher, without=[sleeper])
            writer.wait_writes(5, since=asleep)
            wait_until(
                lambda: conductor(five, watcher) not in ("", sleeper), "somebody else has taken the lease", every=0.2
            )
    finally:
        thaw(frozen)
    five.wait_agree(ALIVE)
    becomes_plain(five, sleeper)
    assert {event: logged_events(five, sleeper, event) for event in acts} == before
    wait_complete(five, watcher, without=[sleeper])


def test_without_a_quorum_nothing_is_done_until_a_person_recovers_it_from_a_snapshot(
    five: Fleet, tmp_path: Path
) -> None:
    keeper, *others = sorted(wait_complete(five, "s1"))
    with client(five, keeper, tmp_path / "before.history") as writer:
        writer.wait_writes(5)
    written = writer.operations()
    snapshot = json.loads(five.rackwright(keeper, "mesh", "datastore", "--snapshot", "--json"))["snapshot"]
    removed, lost = (
        count_logged(five, "datastore_member_removed"),
        len(logged_events(five, keeper, "datastore_quorum_lost")),
    )
    configure_store(five, keeper, f"datastore.grace={GRACE}")
    periods = probes(five, keeper) + 2 * GRACE
    five.kill(*others)  # at once, so that nobody takes over from the one while the other still lives
    wait_until(
        lambda: len(logged_events(five, keeper, "datastore_quorum_lost")) > lost,
        "it is said that the quorum is lost",
        every=0.2,
    )
    shown = five.rackwright(keeper, "mesh", "datastore")
    assert "quorum lost" in shown
    assert "mesh recover" in " ".join(shown.split())
    # With a quorum somebody would be replaced then: a protocol period is a second at the least.
    wait_until(
        lambda: probes(five, keeper) > periods, "the time after which a lost server is replaced is over", every=0.2
    )
    assert count_logged(five, "datastore_member_removed") == removed
    five.rackwright(keeper, "mesh", "recover", "--from-snapshot", snapshot, "--yes")
    wait_complete(five, keeper, without=others)
    configure_store(five, keeper, "datastore.grace=")
    five.start_all()
    for server in others:
        becomes_plain(five, server)
    with client(five, keeper, tmp_path / "after.history") as reader:
        wait_until(lambda: len(reader.operations()) > 20, "the datastore is used after the recovery", every=0.2)
    assert first_problem([*written, *reader.operations()]) is None, "what the snapshot holds is there"


def probes(fleet: Fleet, server: str) -> float:
    return fleet.metric(server, "rackwright_mesh_swim_probes_total")


def etcd_of(fleet: Fleet, server: str) -> int:
    """The process id of a server's etcd; 0 while it has none."""
    return next((process for process in fleet.processes(server) if program_of(process) == "etcd"), 0)


def test_a_removed_server_can_no_longer_use_the_datastore_not_even_over_an_open_connection(
    formed: Fleet, tmp_path: Path
) -> None:
    formed.wait_agree(ALIVE)
    voters = wait_complete(formed, "s1")
    inside, removed = sorted(set(SERVERS) - voters, key=lambda server: (server != "s1", server))
    with (
        client(formed, removed, tmp_path / "removed.history") as shut_out,
        client(formed, inside, tmp_path / "inside.history") as allowed,
    ):
        shut_out.wait_writes(5)
        before = {server: etcd_of(formed, server) for server in voters}
        formed.rackwright("s1", "mesh", "remove", removed, "--yes")
        # An open connection ends with the etcd that holds it, and the next one lets nobody in that was removed.
        wait_until(
            lambda: all(etcd_of(formed, server) not in (0, before[server]) for server in voters),
            "each datastore server has begun its etcd anew",
            every=0.2,
        )
        out = time.monotonic()
        allowed.wait_writes(5, since=out)
        wait_until(lambda: shut_out.tries(since=out) >= 3, "the removed server has tried in vain", every=0.2)
        assert shut_out.writes(since=out) == 0
        assert shut_out.process.poll() is None, "it tries, and is not let in"
