"""What is worth an event about a server: each happening once, whoever looks, and no flood of a thing that flaps."""

from dataclasses import replace

import pytest

from rackwright.mesh.health.health_checks import Result, Status
from rackwright.mesh.health.member_news import (
    ALIVE,
    DEAD,
    FLAP_SECONDS,
    FLAP_TELLS,
    LEFT,
    NOTHING,
    REMOVED,
    SERVER_TELLS,
    LastTold,
    Seen,
    is_settled,
    news_of,
    read_last_told,
)

WELL = Seen("s1", ALIVE, "10.0.0.1:7946", session=3, incarnation=10)


def failing(*names: str, status: Status = Status.FAILING) -> tuple[Result, ...]:
    return tuple(Result(name, status, "refused" if status is Status.FAILING else "") for name in names)


class Story:
    """What is told of one server as it is seen in one way after the other."""

    def __init__(self) -> None:
        self.last = NOTHING
        self.now = 1000.0

    def see(self, seen: Seen, after: float = 10.0) -> list[str]:
        self.now += after
        events, last = news_of(self.last, seen, self.now)
        # As it would be read again by another server.
        self.last = read_last_told(last.dump())
        assert self.last == last
        return [" ".join([news.kind, *([news.fields["check"]] if "check" in news.fields else [])]) for news in events]


def test_a_death_and_a_return_are_told_once_each() -> None:
    story = Story()
    back = replace(WELL, incarnation=12)
    assert [story.see(seen) for seen in (WELL, WELL, replace(WELL, state=DEAD), replace(WELL, state=DEAD), back)] == [
        ["member_joined"],
        [],
        ["member_dead"],
        [],
        ["member_alive"],
    ]
    assert story.see(back) == []


def test_who_looks_with_an_older_view_than_the_one_before_tells_nothing() -> None:
    story = Story()
    story.see(WELL)
    story.see(replace(WELL, state=DEAD, incarnation=12))
    assert story.see(WELL) == []
    assert story.see(replace(WELL, incarnation=12)) == []
    assert story.see(replace(WELL, incarnation=13, session=4)) == ["member_alive"]


def test_a_restart_that_nobody_saw_as_a_death_is_told() -> None:
    story = Story()
    story.see(WELL)
    assert story.see(replace(WELL, session=4, incarnation=11)) == ["member_restarted"]
    assert story.see(replace(WELL, session=4, incarnation=12)) == []


def test_who_left_or_was_removed_is_not_said_to_be_dead_and_may_come_back() -> None:
    story = Story()
    story.see(WELL)
    assert story.see(replace(WELL, state=LEFT)) == ["member_left"]
    assert story.see(replace(WELL, state=DEAD)) == []
    assert story.see(replace(WELL, incarnation=11, session=4)) == ["member_alive"]
    out = Seen("s1", REMOVED, revoked=1)
    assert story.see(out) == ["member_removed"]
    assert story.see(out) == []
    again = replace(WELL, session=1, incarnation=1, revoked=1)
    assert story.see(again) == ["member_joined"], "under a new identity it counts anew"
    assert story.see(out) == [], "who has just started knows it from the list only"
    assert story.see(replace(again, state=DEAD)) == ["member_dead"]


def test_failing_software_is_told_once_and_when_it_passes() -> None:
    story = Story()
    story.see(WELL)
    assert story.see(replace(WELL, incarnation=11, results=failing("web", "db"))) == [
        "check_failing web",
        "check_failing db",
    ]
    # Restarted: nothing is known yet.
    assert story.see(replace(WELL, incarnation=12, results=(), whole=False)) == []
    assert story.see(replace(WELL, incarnation=13, results=failing("web", status=Status.UNKNOWN), whole=False)) == []
    assert story.see(replace(WELL, incarnation=14, state=DEAD, results=failing("mail"))) == ["member_dead"]
    passing = failing("web", status=Status.PASSING)
    back = replace(WELL, incarnation=15, results=passing)
    assert story.see(back) == ["member_alive", "check_passing web", "check_removed db"]
    assert story.see(back) == []


def test_what_flaps_is_not_told_each_time_and_its_end_is() -> None:
    story = Story()
    story.see(WELL)
    told, seen = 0, WELL
    for turn in range(100):
        status = Status.PASSING if turn % 2 else Status.FAILING
        seen = replace(WELL, incarnation=20 + turn, results=failing("web", status=status))
        told += len(story.see(seen, after=0.1))
    assert told == FLAP_TELLS
    seen = replace(seen, incarnation=200, results=failing("web"))
    assert not is_settled(story.last, seen), "it is looked at again although it does not change"
    assert story.see(seen, after=1.0) == []
    assert story.see(seen, after=FLAP_SECONDS) == ["check_failing web"]
    assert is_settled(story.last, seen)


def test_the_last_telling_says_that_it_flaps() -> None:
    story = Story()
    story.see(WELL)
    for turn in range(FLAP_TELLS):
        seen = replace(WELL, incarnation=11 + turn, results=failing("web", status=Status(2 - turn % 2)))
        events, story.last = news_of(story.last, seen, 1020.0)
        assert [news.fields.get("flapping", False) for news in events] == [turn == FLAP_TELLS - 1]


def test_ever_new_names_of_checks_do_not_hide_a_death() -> None:
    story = Story()
    story.see(WELL)
    told = 0
    for turn in range(100):
        told += len(story.see(replace(WELL, incarnation=20 + turn, results=failing(f"c{turn}")), after=0.1))
    assert told < SERVER_TELLS
    assert story.see(replace(WELL, incarnation=200, state=DEAD)) == ["member_dead"]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"state": "alive"}',
        LastTold().dump().replace(b'"told": {}', b'"told": []'),
        LastTold().dump().replace(b'"told": {}', b'"told": {"web": [NaN]}'),
        LastTold().dump().replace(b'"at": 0.0', b'"at": 1e999'),
        LastTold().dump().replace(b'"session": 0', b'"session": 1e999'),
    ],
)
def test_what_another_wrote_in_its_place_counts_as_nothing_told(value: bytes) -> None:
    assert read_last_told(value) == NOTHING
