"""The datastore of five servers, hurt while clients use it. It must stay linearizable, lose no acknowledged write, and
come back to full strength by itself; without a quorum it must do nothing.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.linearizable import Kind, Operation, first_problem
from tests.support.netns import cluster, network
from tests.support.provider import program_of
from tests.support.store import (
    Client,
    block_peers,
    client,
    datastore,
    freeze,
    leader,
    thaw,
    unblock_peers,
    voters,
    wait_complete,
    wires,
)

from rackwright.mesh.datastore_config import DatastoreConfig
from rackwright.mesh.fleet import Fleet, wait_until

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")
CONFIG = DatastoreConfig(grace=3.0, learner_seconds=12.0, lease_seconds=3)


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with network(SERVERS) as net, cluster(tmp_path_factory.mktemp("store"), SERVERS, net, CONFIG) as made:
        yield made


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    """All five alive with a complete datastore, before and after each test."""
    formed.wait_agree(ALIVE, seconds=60)
    wait_complete(formed, "s1")
    yield formed
    wires(formed).heal()
    for server in SERVERS:
        unblock_peers(formed, server)
    formed.start_all()


@pytest.fixture
def using(five: Fleet, tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    """Clients on servers of one's choice; afterwards all that they did must have happened one at a time."""
    clients: list[Client] = []

    def use(server: str) -> Client:
        made = Client(five, server, tmp_path / f"{server}.history")
        clients.append(made)
        made.wait_writes(5)
        return made

    try:
        yield use
    finally:
        for made in clients:
            made.end()
    history = [operation for made in clients for operation in made.operations()]
    assert any(operation.kind is Kind.READ for operation in history)
    assert first_problem(history) is None
    assert first_problem(corrupted(history)) is not None, "the checker must see a lost write"


def corrupted(history: list[Operation]) -> list[Operation]:
    """The same history, but the last read saw what had been overwritten before it began: a write was lost."""
    last = max((one for one in history if one.kind is Kind.READ), key=lambda operation: operation.start)
    writes = [one for one in history if one.key == last.key and one.kind is Kind.WRITE and one.end < last.start]
    first, second = min(writes, key=lambda one: one.end), max(writes, key=lambda one: one.start)
    stale = first.value if first.end < second.start else "never written"
    return [replace(operation, value=stale) if operation is last else operation for operation in history]


def plain_servers(fleet: Fleet, asked: str) -> list[str]:
    return sorted(set(SERVERS) - voters(fleet, asked))


def becomes_plain(fleet: Fleet, server: str) -> None:
    wait_until(lambda: datastore(fleet, server)["here"] == "none", 60, f"{server} is still a datastore", every=0.2)


def conductor(fleet: Fleet, asked: str) -> str:
    return str(datastore(fleet, asked)["conductor"])


def told(fleet: Fleet, server: str, event: str) -> int:
    return sum(line["event"] == event for line in fleet.log(server))


def test_another_takes_over_from_the_killed_leader_while_a_client_writes(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    victim, watcher = leader(five, "s1"), plain_servers(five, "s1")[-1]
    writer = using(watcher)
    assert [program_of(process) for process in five.processes(victim)].count("etcd") == 1, "which dies with its agent"
    killed = time.monotonic()
    five.kill(victim)
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
        victim = next(server for server in sorted(voters(five, watcher)) if server != watcher)
        killed = time.monotonic()
        five.kill(victim)
        gone.append(victim)
        wait_complete(five, watcher, without=gone)
        writer.wait_writes(5, since=killed)


def learner(fleet: Fleet, before: int) -> str:
    """Who was added as a learner since there were `before` of them."""

    def added() -> list[str]:
        lines = [line for server in SERVERS for line in fleet.log(server) if line["event"] == "datastore_learner_added"]
        return [line["member"] for line in sorted(lines, key=lambda line: line["time"])][before:]

    wait_until(lambda: bool(added()), 60, "nobody was made a learner", every=0.1)
    return added()[0]


def test_a_candidate_that_dies_while_it_takes_over_is_followed_by_the_next(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    plain, victim = plain_servers(five, "s1"), sorted(voters(five, "s1"))[0]
    before = sum(told(five, server, "datastore_learner_added") for server in SERVERS)
    # They would learn for ever, so that the first surely dies in the middle of it.
    for server in plain:
        block_peers(five, server)
    five.kill(victim)
    first = learner(five, before)
    (second,) = set(plain) - {first}
    using(second)
    five.kill(first)
    unblock_peers(five, second)
    wait_complete(five, second, without=[victim, first])


def test_a_learner_that_never_catches_up_is_given_up(five: Fleet) -> None:
    plain, victim = plain_servers(five, "s1"), sorted(voters(five, "s1"))[0]
    before = sum(told(five, server, "datastore_learner_added") for server in SERVERS)
    for server in plain:
        block_peers(five, server)
    five.kill(victim)
    first = learner(five, before)
    (second,) = set(plain) - {first}
    unblock_peers(five, second)
    wait_complete(five, second, without=[victim, first])
    removals = [line for server in SERVERS for line in five.log(server) if line["event"] == "datastore_member_removed"]
    assert any(line["member"] == first and "not caught up" in line["why"] for line in removals)
    assert five.running(first), "it was given up because it did not learn, not because it died"


def test_the_small_side_of_a_partition_neither_answers_nor_acts(five: Fleet, using: Callable[[str], Client]) -> None:
    lone = leader(five, "s1")
    plain = plain_servers(five, "s1")
    large = [server for server in SERVERS if server not in (lone, plain[0])]
    inside, outside = using(plain[0]), using(plain[1])
    changes = {server: told(five, server, "datastore_member_removed") for server in (lone, plain[0])}
    wires(five).split([lone, plain[0]])
    cut = time.monotonic()
    wait_complete(five, large[0], without=[lone])
    outside.wait_writes(5, since=cut)
    # Whatever the small side answered after the election it answered from a majority, or not at all; the history of
    # both clients together is what proves that nothing stale was given out as fresh.
    assert inside.writes(since=time.monotonic() - 0.5) == 0
    assert datastore(five, lone)["quorum"] is False
    assert {server: told(five, server, "datastore_member_removed") for server in changes} == changes
    wires(five).heal()
    five.wait_agree(ALIVE, seconds=60)
    becomes_plain(five, lone)


def test_a_leader_that_slept_past_its_lease_does_not_act_when_it_wakes(
    five: Fleet, using: Callable[[str], Client]
) -> None:
    sleeper = conductor(five, "s1")
    watcher = plain_servers(five, sleeper)[-1]
    writer = using(watcher)
    before = {event: told(five, sleeper, f"datastore_{event}") for event in ("member_removed", "learner_added")}
    frozen = freeze(five, sleeper)
    try:
        asleep = time.monotonic()
        wait_complete(five, watcher, without=[sleeper])
        writer.wait_writes(5, since=asleep)
        wait_until(lambda: conductor(five, watcher) not in ("", sleeper), 60, "nobody else has taken the lease")
    finally:
        thaw(frozen)
    five.wait_agree(ALIVE, seconds=60)
    becomes_plain(five, sleeper)
    assert {event: told(five, sleeper, f"datastore_{event}") for event in before} == before
    wait_complete(five, watcher, without=[sleeper])


def test_without_a_quorum_nothing_is_done_until_a_person_recovers_it_from_a_snapshot(
    five: Fleet, tmp_path: Path
) -> None:
    keeper, *others = sorted(voters(five, "s1"))
    with client(five, keeper, tmp_path / "before.history") as writer:
        writer.wait_writes(5)
    kept = writer.operations()
    snapshot = json.loads(five.rackwright(keeper, "mesh", "datastore", "--snapshot", "--json"))["snapshot"]
    removed = sum(told(five, server, "datastore_member_removed") for server in SERVERS)
    for server in others:
        five.kill(server)
    wait_until(lambda: told(five, keeper, "datastore_quorum_lost") > 0, 60, "nobody says that the quorum is lost")
    shown = five.rackwright(keeper, "mesh", "datastore")
    assert "quorum lost" in shown
    assert "mesh recover" in " ".join(shown.split())
    assert sum(told(five, server, "datastore_member_removed") for server in SERVERS) == removed
    five.rackwright(keeper, "mesh", "recover", "--from-snapshot", snapshot, "--yes")
    wait_complete(five, keeper, without=others)
    five.start_all()
    for server in others:
        becomes_plain(five, server)
    with client(five, keeper, tmp_path / "after.history") as reader:
        wait_until(lambda: len(reader.operations()) > 20, 60, "nothing can be read after the recovery")
    assert first_problem([*kept, *reader.operations()]) is None, "what the snapshot holds is there"


def test_a_removed_server_can_no_longer_use_the_datastore_not_even_over_an_open_connection(
    formed: Fleet, tmp_path: Path
) -> None:
    formed.wait_agree(ALIVE, seconds=60)
    wait_complete(formed, "s1")
    removed = next(server for server in plain_servers(formed, "s1") if server != "s1")
    inside = next(server for server in plain_servers(formed, "s1") if server != removed)
    with (
        client(formed, removed, tmp_path / "removed.history") as shut_out,
        client(formed, inside, tmp_path / "inside.history") as allowed,
    ):
        shut_out.wait_writes(5)
        formed.rackwright("s1", "mesh", "remove", removed)
        wait_until(lambda: shut_out.writes(time.monotonic() - 5) == 0, 120, "it still writes", every=0.5)
        allowed.wait_writes(5, since=time.monotonic())
        assert shut_out.process.poll() is None, "it tries, and is not let in"
