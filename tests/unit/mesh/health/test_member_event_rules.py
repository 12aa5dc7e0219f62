"""The rules for events about a member: each change once, whichever server observes it, and no flood from flapping."""

from dataclasses import replace

import pytest

from rackwright.mesh.health.health_checks import CheckReport, Status
from rackwright.mesh.health.member_event_rules import (
    ALIVE,
    DEAD,
    FLAP_EVENTS,
    FLAP_SECONDS,
    LEFT,
    MEMBER_EVENTS,
    NO_REPORT,
    REMOVED,
    LastReport,
    ObservedMember,
    events_since,
    is_settled,
    read_last_report,
)

WELL = ObservedMember("s1", ALIVE, "10.0.0.1:7946", session=3, incarnation=10)


def failing(*names: str, status: Status = Status.FAILING) -> tuple[CheckReport, ...]:
    return tuple(CheckReport(name, status, "refused" if status is Status.FAILING else "") for name in names)


class History:
    """The events of a member as it is observed in one state after the other."""

    def __init__(self) -> None:
        self.last = NO_REPORT
        self.now = 1000.0

    def observe(self, member: ObservedMember, after: float = 10.0) -> list[str]:
        self.now += after
        events, last = events_since(self.last, member, self.now)
        # As it would be read again by another server.
        self.last = read_last_report(last.dump())
        assert self.last == last
        return [
            " ".join([event.kind, *([event.fields["check"]] if "check" in event.fields else [])]) for event in events
        ]


def test_a_death_and_a_return_are_told_once_each() -> None:
    history = History()
    back = replace(WELL, incarnation=12)
    assert [
        history.observe(member) for member in (WELL, WELL, replace(WELL, state=DEAD), replace(WELL, state=DEAD), back)
    ] == [
        ["member_joined"],
        [],
        ["member_dead"],
        [],
        ["member_alive"],
    ]
    assert history.observe(back) == []


def test_who_looks_with_an_older_view_than_the_one_before_tells_nothing() -> None:
    history = History()
    history.observe(WELL)
    history.observe(replace(WELL, state=DEAD, incarnation=12))
    assert history.observe(WELL) == []
    assert history.observe(replace(WELL, incarnation=12)) == []
    assert history.observe(replace(WELL, incarnation=13, session=4)) == ["member_alive"]


def test_a_restart_that_nobody_saw_as_a_death_is_told() -> None:
    history = History()
    history.observe(WELL)
    assert history.observe(replace(WELL, session=4, incarnation=11)) == ["member_restarted"]
    assert history.observe(replace(WELL, session=4, incarnation=12)) == []


def test_who_left_or_was_removed_is_not_said_to_be_dead_and_may_come_back() -> None:
    history = History()
    history.observe(WELL)
    assert history.observe(replace(WELL, state=LEFT)) == ["member_left"]
    assert history.observe(replace(WELL, state=DEAD)) == []
    assert history.observe(replace(WELL, incarnation=11, session=4)) == ["member_alive"]
    out = ObservedMember("s1", REMOVED, revoked=1)
    assert history.observe(out) == ["member_removed"]
    assert history.observe(out) == []
    again = replace(WELL, session=1, incarnation=1, revoked=1)
    assert history.observe(again) == ["member_joined"], "under a new identity it counts anew"
    assert history.observe(out) == [], "who has just started knows it from the list only"
    assert history.observe(replace(again, state=DEAD)) == ["member_dead"]


def test_failing_software_is_told_once_and_when_it_passes() -> None:
    history = History()
    history.observe(WELL)
    assert history.observe(replace(WELL, incarnation=11, reports=failing("web", "db"))) == [
        "check_failing web",
        "check_failing db",
    ]
    # Restarted: nothing is known yet.
    assert history.observe(replace(WELL, incarnation=12, reports=(), complete=False)) == []
    assert (
        history.observe(replace(WELL, incarnation=13, reports=failing("web", status=Status.UNKNOWN), complete=False))
        == []
    )
    assert history.observe(replace(WELL, incarnation=14, state=DEAD, reports=failing("mail"))) == ["member_dead"]
    passing = failing("web", status=Status.PASSING)
    back = replace(WELL, incarnation=15, reports=passing)
    assert history.observe(back) == ["member_alive", "check_passing web", "check_removed db"]
    assert history.observe(back) == []


def test_what_flaps_is_not_told_each_time_and_its_end_is() -> None:
    history = History()
    history.observe(WELL)
    count, member = 0, WELL
    for turn in range(100):
        status = Status.PASSING if turn % 2 else Status.FAILING
        member = replace(WELL, incarnation=20 + turn, reports=failing("web", status=status))
        count += len(history.observe(member, after=0.1))
    assert count == FLAP_EVENTS
    member = replace(member, incarnation=200, reports=failing("web"))
    assert not is_settled(history.last, member), "it is looked at again although it does not change"
    assert history.observe(member, after=1.0) == []
    assert history.observe(member, after=FLAP_SECONDS) == ["check_failing web"]
    assert is_settled(history.last, member)


def test_the_last_telling_says_that_it_flaps() -> None:
    history = History()
    history.observe(WELL)
    for turn in range(FLAP_EVENTS):
        member = replace(WELL, incarnation=11 + turn, reports=failing("web", status=Status(2 - turn % 2)))
        events, history.last = events_since(history.last, member, 1020.0)
        assert [event.fields.get("flapping", False) for event in events] == [turn == FLAP_EVENTS - 1]


def test_ever_new_names_of_checks_do_not_hide_a_death() -> None:
    history = History()
    history.observe(WELL)
    count = 0
    for turn in range(100):
        count += len(history.observe(replace(WELL, incarnation=20 + turn, reports=failing(f"c{turn}")), after=0.1))
    assert count < MEMBER_EVENTS
    assert history.observe(replace(WELL, incarnation=200, state=DEAD)) == ["member_dead"]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"state": "alive"}',
        LastReport().dump().replace(b'"told": {}', b'"told": []'),
        LastReport().dump().replace(b'"told": {}', b'"told": {"web": [NaN]}'),
        LastReport().dump().replace(b'"at": 0.0', b'"at": 1e999'),
        LastReport().dump().replace(b'"session": 0', b'"session": 1e999'),
    ],
)
def test_what_another_wrote_in_its_place_counts_as_nothing_told(value: bytes) -> None:
    assert read_last_report(value) == NO_REPORT
