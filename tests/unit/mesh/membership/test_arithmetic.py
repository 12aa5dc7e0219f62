"""The arithmetic of the membership protocol, as tables."""

import random

import pytest

from rackwright.mesh.membership.awareness import Awareness, probe_delta
from rackwright.mesh.membership.gossip_queue import BroadcastQueue, retransmit_limit
from rackwright.mesh.membership.messages import Suspect
from rackwright.mesh.membership.suspicion import Suspicion, confirmations_needed, suspicion_timeout, timeout_after
from rackwright.mesh.membership.sync import sync_scale


@pytest.mark.parametrize(
    ("members", "expected"),
    [(0, 4.0), (1, 4.0), (3, 4.0), (10, 4.0), (50, 6.796), (100, 8.0), (500, 10.796), (1000, 12.0), (10_000, 16.0)],
)
def test_suspicion_grows_with_the_logarithm_of_the_cluster(members: int, expected: float) -> None:
    assert suspicion_timeout(4, members, 1.0) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("confirmations", "needed", "expected"),
    [
        (0, 3, 30.0),
        (1, 3, 16.0),
        (2, 3, 7.810),
        (3, 3, 2.0),
        (4, 3, 2.0),
        (0, 0, 2.0),
        (1, 0, 2.0),
    ],
)
def test_confirmations_shorten_a_suspicion_logarithmically(confirmations: int, needed: int, expected: float) -> None:
    assert timeout_after(confirmations, needed, 2.0, 30.0) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("members", "needed"), [(1, 0), (2, 0), (3, 0), (4, 2), (5, 2), (1000, 2)])
def test_no_confirmations_are_awaited_that_nobody_can_give(members: int, needed: int) -> None:
    assert confirmations_needed(4, members) == needed


@pytest.mark.parametrize(
    ("members", "limit"), [(0, 0), (1, 4), (9, 4), (10, 8), (99, 8), (100, 12), (1000, 16), (10_000, 20)]
)
def test_retransmits_grow_with_the_logarithm_of_the_cluster(members: int, limit: int) -> None:
    assert retransmit_limit(4, members) == limit


@pytest.mark.parametrize(("members", "intervals"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (128, 3), (10_000, 10)])
def test_a_large_cluster_compares_tables_less_often(members: int, intervals: int) -> None:
    assert sync_scale(30.0, members) == intervals * 30.0


@pytest.mark.parametrize(
    ("answered", "expected_nacks", "nacks", "delta"),
    [(True, 0, 0, -1), (True, 3, 0, -1), (False, 0, 0, 1), (False, 3, 3, 0), (False, 3, 1, 2), (False, 3, 0, 3)],
)
def test_silent_relays_speak_against_ourselves(answered: bool, expected_nacks: int, nacks: int, delta: int) -> None:
    assert probe_delta(answered, expected_nacks, nacks) == delta


def test_awareness_stays_between_zero_and_its_limit() -> None:
    awareness = Awareness(8)
    awareness.add(-3)
    assert awareness.scale(1.0) == 1.0
    awareness.add(100)
    assert (awareness.score, awareness.scale(0.5)) == (7, 4.0)


def test_one_accuser_counts_once_and_no_more_than_needed() -> None:
    suspicion = Suspicion("a", 100.0, needed=2, shortest=4.0, longest=24.0)
    assert suspicion.deadline == 124.0
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert not suspicion.confirm("b")
    assert suspicion.deadline == pytest.approx(111.381, abs=0.001)
    assert suspicion.confirm("c")
    assert suspicion.deadline == 104.0
    assert not suspicion.confirm("d")


def test_gossip_takes_the_least_sent_first_and_stops_at_the_limit() -> None:
    queue = BroadcastQueue(100)
    queue.add(Suspect("x", 1, "a"))
    assert [update.name for update in queue.take(1, 3)] == ["x"]
    queue.add(Suspect("y", 1, "a"))
    assert [update.name for update in queue.take(1, 3)] == ["y"]
    taken = [update.name for _ in range(9) for update in queue.take(1, 3)]
    assert sorted(taken) == ["x", "x", "y", "y"]
    assert len(queue) == 0


def test_news_replaces_older_news_about_the_same_member() -> None:
    queue = BroadcastQueue(100)
    queue.add(Suspect("x", 1, "a"))
    queue.take(1000, 4)
    queue.add(Suspect("x", 2, "a"))
    assert [update.incarnation for update in queue.take(1000, 4)] == [2]
    assert len(queue) == 1


def test_gossip_fills_its_budget_and_not_more() -> None:
    queue = BroadcastQueue(1000)
    for number in range(200):
        queue.add(Suspect(f"member{number}", 1, "a"))
    taken = queue.take(1400, 4)
    assert 1300 < sum(len(update.wire) for update in taken) <= 1400


def test_the_gossip_queue_never_outgrows_its_limit() -> None:
    queue = BroadcastQueue(10)
    rng = random.Random(1)
    for number in range(1000):
        queue.add(Suspect(f"m{number}", 1, "a"))
        if rng.random() < 0.5:
            queue.take(100, 4)
        assert len(queue) <= 10
    assert queue.take(1, 4)[0].name == "m999"
