"""Who takes over the datastore, and when nobody may: the decisions, without an etcd."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.mesh.datastore.takeover import (
    Add,
    Candidate,
    Condition,
    DatastoreView,
    JudgedMember,
    Promote,
    Remove,
    Takeover,
    TakeoverStep,
    Wait,
    quorum,
)

WELL, LOST, DOUBTFUL = Condition.WELL, Condition.LOST, Condition.DOUBTFUL
FREE = (Candidate("s4"), Candidate("s5"))


def members(*conditions: Condition) -> tuple[JudgedMember, ...]:
    return tuple(JudgedMember(number, f"s{number}", condition) for number, condition in enumerate(conditions, 1))


def machine(count: int = 3, grace: float = 30.0, learner_seconds: float = 60.0) -> Takeover:
    return Takeover(count, grace, learner_seconds)


def after(takeover: Takeover, view: DatastoreView, *times: float) -> TakeoverStep:
    for now in times:
        decision = takeover.decide(now, view)
    return decision


def test_one_grows_when_three_can_be_reached() -> None:
    assert machine().decide(0, DatastoreView(members(WELL), FREE)) == Add("s4", "1 of 3")


def test_one_does_not_become_two_for_two_stop_when_either_does() -> None:
    decision = machine().decide(0, DatastoreView(members(WELL), FREE[:1]))
    assert isinstance(decision, Wait)
    assert "third" in decision.reason


def test_a_complete_datastore_is_left_alone() -> None:
    assert machine().decide(0, DatastoreView(members(WELL, WELL, WELL), FREE)) == Wait("complete")


def test_one_too_many_is_let_go_while_all_are_well() -> None:
    four = members(WELL, WELL, WELL, WELL)
    assert machine().decide(0, DatastoreView(four, FREE)) == Remove(four[-1], "4, and 3 are wanted")
    assert isinstance(machine().decide(0, DatastoreView(members(WELL, WELL, WELL, DOUBTFUL), FREE)), Wait)


def test_a_lost_one_is_left_alone_within_the_grace_period_and_removed_after_it() -> None:
    takeover, view = machine(), DatastoreView(members(WELL, LOST, WELL), FREE)
    assert isinstance(after(takeover, view, 0, 29.9), Wait)
    decision = takeover.decide(30.0, view)
    assert isinstance(decision, Remove)
    assert decision.member.server == "s2"


def test_one_that_comes_back_for_a_moment_gets_the_whole_grace_period_again() -> None:
    takeover, gone = machine(), DatastoreView(members(WELL, LOST, WELL), FREE)
    after(takeover, gone, 0, 20)
    takeover.decide(21, DatastoreView(members(WELL, WELL, WELL), FREE))
    assert isinstance(after(takeover, gone, 22, 45), Wait)
    assert isinstance(takeover.decide(52, gone), Remove)


def test_one_that_is_only_doubtful_is_never_removed() -> None:
    assert isinstance(after(machine(), DatastoreView(members(WELL, DOUBTFUL, WELL), FREE), 0, 1000, 2000), Wait)


def test_a_lost_one_keeps_its_vote_while_nobody_can_take_over() -> None:
    decision = after(machine(), DatastoreView(members(WELL, LOST, WELL), ()), 0, 100)
    assert isinstance(decision, Wait)
    assert "no eligible server" in decision.reason


def test_a_removed_server_loses_its_vote_at_once_and_without_a_successor() -> None:
    assert isinstance(machine().decide(0, DatastoreView(members(WELL, Condition.REMOVED, WELL), ())), Remove)


def test_without_quorum_nothing_is_done_however_long_it_takes() -> None:
    decision = after(machine(), DatastoreView(members(WELL, LOST, LOST), FREE), 0, 1000)
    assert isinstance(decision, Wait)
    assert "quorum lost: 1 of 3" in decision.reason


def test_the_second_of_two_lost_in_five_waits_until_the_first_is_replaced() -> None:
    takeover = machine(count=5)
    view = DatastoreView(members(WELL, LOST, WELL, LOST, WELL), (Candidate("s6"), Candidate("s7")))
    first = after(takeover, view, 0, 30)
    assert isinstance(first, Remove)
    assert first.member.server == "s2"
    remaining = replace(view, members=tuple(member for member in view.members if member.server != "s2"))
    second = takeover.decide(31, remaining)
    assert isinstance(second, Remove), "three healthy of four are a quorum also without the other lost one"
    assert second.member.server == "s4"


def test_the_next_to_go_is_not_removed_if_too_few_healthy_ones_would_be_left() -> None:
    decision = after(machine(), DatastoreView(members(WELL, LOST, DOUBTFUL), FREE), 0, 100)
    assert isinstance(decision, Wait)
    assert "no quorum" in decision.reason


def test_a_learner_is_promoted_and_nothing_else_is_done_meanwhile() -> None:
    learner = JudgedMember(9, "s4", DOUBTFUL, learner=True)
    view = DatastoreView((*members(WELL, LOST), learner), FREE[1:])
    assert isinstance(after(machine(count=3), DatastoreView((*members(WELL, WELL), learner), FREE[1:]), 0, 50), Promote)
    assert isinstance(after(machine(count=5), view, 0, 1), Wait), "two voters with one lost have no quorum"


def test_a_learner_that_misses_its_deadline_is_removed_and_the_next_candidate_tried() -> None:
    takeover = machine()
    learning = DatastoreView((*members(WELL, WELL), JudgedMember(9, "s4", DOUBTFUL, learner=True)), FREE[1:])
    decision = after(takeover, learning, 0, 61)
    assert isinstance(decision, Remove)
    assert decision.member.server == "s4"
    assert takeover.decide(62, DatastoreView(members(WELL, WELL), FREE)) == Add("s5", "2 of 3")


def test_a_candidate_that_dies_in_the_middle_is_given_up_before_its_deadline() -> None:
    takeover = machine(grace=10)
    learning = DatastoreView((*members(WELL, WELL), JudgedMember(9, "s4", LOST, learner=True)), FREE[1:])
    assert isinstance(after(takeover, learning, 0, 1), Promote)
    assert isinstance(takeover.decide(6, learning), Remove)


def test_who_failed_is_tried_again_when_nobody_else_is_left() -> None:
    takeover = machine()
    after(takeover, DatastoreView((*members(WELL, WELL), JudgedMember(9, "s4", DOUBTFUL, learner=True)), ()), 0, 61)
    assert takeover.decide(62, DatastoreView(members(WELL, WELL), FREE[:1])) == Add("s4", "2 of 3")


def test_of_those_that_failed_the_one_that_failed_first_is_tried_first() -> None:
    takeover = machine()
    for start, server in ((0, "s4"), (10, "s5")):
        after(
            takeover,
            DatastoreView((*members(WELL, WELL), JudgedMember(9, server, DOUBTFUL, learner=True)), ()),
            start,
            start + 61,
        )
        takeover.decide(start + 62, DatastoreView(members(WELL, WELL), ()))
    assert takeover.decide(80, DatastoreView(members(WELL, WELL), FREE)) == Add("s4", "2 of 3")
    after(takeover, DatastoreView((*members(WELL, WELL), JudgedMember(9, "s4", DOUBTFUL, learner=True)), ()), 81, 143)
    assert takeover.decide(144, DatastoreView(members(WELL, WELL), FREE)) == Add("s5", "2 of 3")


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ((Candidate("a", 2), Candidate("b", 1)), "b"),
        ((Candidate("a", 1, "rack1"), Candidate("b", 1, "rack2")), "b"),
        ((Candidate("a", 1, "rack2"), Candidate("b", 0, "rack1")), "b"),
        ((Candidate("b"), Candidate("a")), "a"),
        ((Candidate("a", 0, "rack9"), Candidate("b", 0, "")), "a"),
    ],
)
def test_fewest_roles_then_another_failure_domain_then_the_name(candidates: tuple[Candidate, ...], chosen: str) -> None:
    view = DatastoreView(members(WELL, WELL), candidates, {"s1": "rack1", "s2": "rack1"})
    decision = machine().decide(0, view)
    assert isinstance(decision, Add)
    assert decision.server == chosen


@given(
    st.lists(st.sampled_from(list(Condition)), min_size=1, max_size=7),
    st.booleans(),
    st.integers(0, 3),
    st.lists(st.floats(0, 200), min_size=1, max_size=6),
)
def test_no_decision_ever_leaves_fewer_healthy_voters_than_a_quorum(
    conditions: list[Condition], learning: bool, free: int, steps: list[float]
) -> None:
    takeover = machine(count=5, grace=10, learner_seconds=20)
    etcd_members = list(members(*conditions)) + (
        [JudgedMember(99, "learner", DOUBTFUL, learner=True)] if learning else []
    )
    now = 0.0
    for step in steps:
        now += step
        view = DatastoreView(tuple(etcd_members), tuple(Candidate(f"c{number}") for number in range(free)))
        decision = takeover.decide(now, view)
        if isinstance(decision, Remove):
            etcd_members = [member for member in etcd_members if member is not decision.member]
            voters = [member for member in etcd_members if not member.learner]
            not_lost = [member for member in voters if member.condition is not LOST]
            assert decision.member.learner or len(not_lost) >= quorum(len(voters))
        elif isinstance(decision, Add):
            assert not any(member.learner for member in etcd_members), "one change at a time"
            etcd_members.append(JudgedMember(100 + len(etcd_members), decision.server, DOUBTFUL, learner=True))
        elif isinstance(decision, Promote):
            etcd_members = [
                replace(v, learner=False, condition=WELL) if v is decision.member else v for v in etcd_members
            ]


def test_it_is_known_when_the_next_grace_period_is_over() -> None:
    takeover = machine(grace=30.0)
    assert takeover.grace_left(0) == math.inf
    after(takeover, DatastoreView(members(WELL, WELL, LOST), FREE), 10, 20)
    assert takeover.grace_left(20) == 20.0
    # One that is over already has nothing left to wait for.
    assert takeover.grace_left(41) == math.inf
